"""PyPI `typesafe-sdk`, as its documentation uses it."""

from typing import Any

from typesafe_sdk import Choice, Noul, RetryPolicy, Score, SystemOneResponse, TypeSafeClient

from calls import Call, run

TYPES: dict[str, Any] = {"noul": Noul, "choice": Choice, "score": Score}


def ask(call: Call) -> SystemOneResponse:
    questions = {name: TYPES[one["type"]](**one) for name, one in call["questions"].items()}
    with TypeSafeClient(
        base_url=call["url"], api_key=call["key"], retry=RetryPolicy(max_retries=0)
    ) as client:
        return client.system_one(state=call["state"], questions=questions)


run(ask)

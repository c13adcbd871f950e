"""What the programs of the Python clients share: calls come in, what came of each goes out.

Standard input is an object of calls by name, each with `url`, `key`, `state` and `questions` as the
protocol has them. Standard output is an object of outcomes by the same names: `answers`, each with
the name of its class, and `model`; or `error`, the name of the exception's class, with the `status`
that it carries and its `message`.
"""

import json
import sys
from collections.abc import Callable
from typing import Any

Call = dict[str, Any]


def run(ask: Callable[[Call], Any]) -> None:
    """Make every call; `ask` gives the client's own response."""
    calls = json.load(sys.stdin)
    print(json.dumps({name: _outcome(ask, call) for name, call in calls.items()}))


def _outcome(ask: Callable[[Call], Any], call: Call) -> dict[str, Any]:
    try:
        response = ask(call)
    except Exception as error:
        return {
            "error": type(error).__name__,
            "status": getattr(error, "status_code", getattr(error, "status", None)),
            "message": str(error),
        }
    answers = {
        name: {"class": type(answer).__name__, **answer.model_dump(mode="json")}
        for name, answer in response.answers.items()
    }
    return {"answers": answers, "model": response.model}

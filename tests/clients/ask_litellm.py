"""PyPI `litellm`: `litellm.systemone()`, as its documentation uses it."""

import litellm

from calls import Call, run

# Its hints for people go to standard output, which is ours.
litellm.suppress_debug_info = True


def ask(call: Call) -> litellm.types.decisions.DecisionsResponse:
    return litellm.systemone(
        model="laya/english",
        api_base=call["url"],
        api_key=call["key"],
        state=call["state"],
        questions=call["questions"],
    )


run(ask)

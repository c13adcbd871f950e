"""Answers and errors to bytes."""

import json
from collections.abc import Sequence
from typing import Any, Final

from omni_jev_worker.protocol import jev
from omni_jev_worker.protocol.dialects import JEV
from omni_jev_worker.protocol.problems import Problem

# `json.dumps` makes an encoder at each call.
_as_json: Final = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":")
).encode


def to_json(value: Any) -> bytes:
    """Render compact UTF-8 JSON. Raises `ValueError` for a number that is not finite.

    NaN is no JSON: a client would fail on it, or worse, read a null as an answer.
    """
    return _as_json(value).encode("utf-8")


def decision(
    answers: dict[str, dict[str, Any]],
    notes: dict[str, dict[str, Any]],
    input_tokens: int,
    routing: dict[str, Any],
    dialect: str,
) -> dict[str, Any]:
    """Put the body of a decision together: laya's answers, and what is noted of each.

    In the dialect ``laya`` it has upstream's names, numbers and order.
    """
    usage = {"input_tokens": input_tokens, "output_tokens": 0}
    if dialect == JEV:
        shown = {name: jev.answer(answer) | notes[name] for name, answer in answers.items()}
        return {"model": routing["model"], "answers": shown, "usage": usage, "x_routing": routing}
    return {
        "model": "laya-rl-agent",
        "answers": {name: answer | notes[name] for name, answer in answers.items()},
        "usage": usage,
        "routing": routing,
    }


def batch(results: Sequence[dict[str, Any] | Problem]) -> dict[str, Any]:
    """Put the body of a batch together: each state's decision or error, in its place."""
    shown = []
    tokens = 0
    for result in results:
        if isinstance(result, Problem):
            shown.append({"error": {"status": result.status, **result.body}})
        else:
            shown.append(result)
            tokens += result["usage"]["input_tokens"]
    return {"results": shown, "usage": {"input_tokens": tokens, "output_tokens": 0}}

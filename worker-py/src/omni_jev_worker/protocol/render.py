"""Answers and errors to bytes."""

import json
from typing import Any


def to_json(value: Any) -> bytes:
    """Render compact UTF-8 JSON. Raises `ValueError` for a number that is not finite.

    NaN is no JSON: a client would fail on it, or worse, read a null as an answer.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8")


def decision(answers: dict[str, Any], input_tokens: int, routing: dict[str, Any]) -> dict[str, Any]:
    """Put the body of a decision together, with upstream's names and order."""
    return {
        "model": "laya-rl-agent",
        "answers": answers,
        "usage": {"input_tokens": input_tokens, "output_tokens": 0},
        "routing": routing,
    }

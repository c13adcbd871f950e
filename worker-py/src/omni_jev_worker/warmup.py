"""The requests that a checkpoint answers before it is offered: short, mid, long, several questions.

Their dimensions are unequal on purpose. A compiler ties dimensions that are equal when it first
sees them, and recompiles for many seconds when a later request has unequal ones.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from omni_jev_worker import memory
from omni_jev_worker.buckets import Buckets

if TYPE_CHECKING:
    # For the types alone: this module is imported before torch may be.
    from omni_jev_worker.model import Encoded, Model

_WORD: Final = "The parcel came late and the box was open. "

_QUESTIONS: Final[dict[str, dict[str, Any]]] = {
    "late": {"type": "noul", "instructions": "Did it come late?"},
    "team": {
        "type": "choice",
        "instructions": "Which team should read this?",
        "criteria": {"delivery": "a parcel and its way", "billing": "money", "other": None},
    },
    "anger": {
        "type": "score",
        "instructions": "How angry is the writer?",
        "criteria": ["calm", "annoyed", "angry", "furious"],
    },
}


@dataclass(frozen=True, slots=True)
class WarmupRequest:
    """One of the requests, with a name for the log."""

    name: str
    state: str
    questions: dict[str, dict[str, Any]]


def requests(window: int, amp_min_rows: int) -> Iterator[WarmupRequest]:
    """Give the requests for a checkpoint with a window of so many tokens.

    ``amp_min_rows`` is the number of rows from which the model runs in another precision.
    """
    one = {"late": _QUESTIONS["late"]}
    yield WarmupRequest("short", _WORD, one)
    yield WarmupRequest("mid", _WORD * 7, {"team": _QUESTIONS["team"]})
    # A word is a token at least, so this is past any window: cut to exactly the longest row.
    yield WarmupRequest("near the window", _WORD * (window // 8), one)
    yield WarmupRequest("several questions", _WORD * 3, dict(_QUESTIONS))
    many = {f"{name} {n}": _QUESTIONS[name] for n in range(amp_min_rows) for name in _QUESTIONS}
    first = dict(list(many.items())[: amp_min_rows + 1])
    yield WarmupRequest("many questions", _WORD * 2, first)


def encoded(loaded: "Model") -> "list[tuple[str, Encoded]]":
    """Give a name and the rows of each request that a model takes."""
    found = [
        (request.name, loaded.encode(request.state, request.questions))
        for request in requests(loaded.window, loaded.mps_amp_min_rows)
    ]
    return [(name, rows) for name, rows in found if loaded.takes(rows)]


def request_texts() -> list[dict[str, Any]]:
    """Give bodies of requests: one question of each type, of short states."""
    return [
        {"state": _WORD * (1 + number), "questions": {name: question}}
        for number, (name, question) in enumerate(_QUESTIONS.items())
    ]


def against_padding(loaded: "Model", chosen: Buckets) -> str | None:
    """Say what speaks against padding to buckets on a model's device; none if nothing does."""
    for request in requests(loaded.window, loaded.mps_amp_min_rows):
        try:
            if not loaded.padding_agrees(loaded.encode(request.state, request.questions), chosen):
                return f"it changes the answers ({request.name})"
        except memory.OutOfMemory as fault:
            return str(fault)
    return None

"""Choices of many options, narrowed to the likeliest before they are asked: ``x_shortlist``.

The state with the question's instructions, and each option, become a vector by the checkpoint's own
encoder; the options whose vectors are nearest to the state's are kept, and only those are asked.
Ranking and texts are those of laya's ``shortlist_choice``. Which model makes the vectors is none of
this module's business; they come from the engine as scores do.
"""

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

FIELD: Final = "x_shortlist"
"""Of a choice in a request: how many options to keep. Of an answer: what became of them."""
FEWEST: Final = 2

# At 1,024 numbers each, 16 MB.
_REMEMBERED: Final = 4096

Vector = NDArray[np.float32]
Questions = Mapping[str, dict[str, Any]]


class TextEncoder(Protocol):
    """What makes texts and rows of them: `model.Model`."""

    def texts(self, state: Any, question: dict[str, Any]) -> tuple[str, list[str]]:
        """Give what is compared: the state with the instructions, and each option."""

    def encode_texts(self, states: Sequence[str], options: Sequence[str]) -> Any:
        """Tokenize them into rows, in this order."""


class Vectors:
    """Options' vectors of one checkpoint, the latest used. May be used by any thread."""

    def __init__(self, most: int = _REMEMBERED) -> None:
        self._most = most
        self._known: OrderedDict[str, Vector] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, texts: Sequence[str]) -> dict[str, Vector]:
        """Give those that are known."""
        with self._lock:
            found = {text: self._known[text] for text in texts if text in self._known}
            for text in found:
                self._known.move_to_end(text)
            return found

    def remember(self, vectors: Mapping[str, Vector]) -> None:
        """Keep these, and drop what has not been used for longest."""
        with self._lock:
            self._known.update(vectors)
            while len(self._known) > self._most:
                self._known.popitem(last=False)

    def __len__(self) -> int:
        return len(self._known)


@dataclass(frozen=True, slots=True)
class Narrowed:
    """What became of one question."""

    question: dict[str, Any]
    """With the options that are kept, the nearest first, in the form that Laya takes."""
    options: tuple[str, ...]
    """All of them, in the client's order."""
    asked: int
    """How many were to be kept."""
    kept: tuple[str, ...]
    similarities: tuple[float, ...] | None
    """Of those, cosines; none where all were kept, and nothing was compared."""

    def widen(self, answer: Mapping[str, Any]) -> dict[str, Any]:
        """Give an answer's probabilities for all options again: 0 for what was not asked."""
        found = answer["probabilities"]
        return {**answer, "probabilities": {name: found.get(name, 0.0) for name in self.options}}

    def note(self) -> dict[str, Any]:
        """Say in the answer what was considered."""
        said: dict[str, Any] = {"k": self.asked, "of": len(self.options)}
        said["considered"] = list(self.kept)
        if self.similarities is not None:
            said["similarities"] = [round(each, 4) for each in self.similarities]
        return {FIELD: said}


@dataclass(frozen=True, slots=True)
class Plan:
    """What has to be embedded before a request's questions can be narrowed."""

    encoded: Any
    """The rows: each narrowed question's state, then the options that are not known."""
    narrowing: tuple[tuple[str, tuple[str, ...]], ...]
    """The questions, each with the texts of its options."""
    missing: tuple[str, ...]
    known: dict[str, Vector]

    def narrow(self, questions: Questions, rows: Vector, vectors: Vectors) -> dict[str, Narrowed]:
        """Narrow each of the questions, with the vectors of the rows."""
        states = rows[: len(self.narrowing)]
        # Copied: a view would keep the whole batch's memory.
        fresh = {
            text: row.copy() for text, row in zip(self.missing, rows[len(states) :], strict=True)
        }
        vectors.remember(fresh)
        there = self.known | fresh
        return {
            name: _narrowed(questions[name], np.stack([there[text] for text in texts]), state)
            for (name, texts), state in zip(self.narrowing, states, strict=True)
        }


def wanted(questions: Questions) -> list[str]:
    """Give the questions that have more options than are to be kept."""
    return [
        name
        for name, question in questions.items()
        if FIELD in question and question[FIELD] < len(question["criteria"])
    ]


def plan(model: TextEncoder, state: Any, questions: Questions, vectors: Vectors) -> Plan | None:
    """Say what has to be embedded; none where nothing is to be narrowed."""
    names = wanted(questions)
    if not names:
        return None
    states, narrowing = [], []
    for name in names:
        text, options = model.texts(state, questions[name])
        states.append(text)
        narrowing.append((name, tuple(options)))
    all_options = list(dict.fromkeys(text for _, texts in narrowing for text in texts))
    known = vectors.find(all_options)
    missing = tuple(text for text in all_options if text not in known)
    return Plan(model.encode_texts(states, missing), tuple(narrowing), missing, known)


def unnarrowed(questions: Questions) -> dict[str, Narrowed]:
    """Give the questions whose options are all kept, since there are no more than asked for."""
    found = {}
    for name, question in questions.items():
        if FIELD in question and question[FIELD] >= len(question["criteria"]):
            options = tuple(question["criteria"])
            found[name] = Narrowed(_asked(question), options, question[FIELD], options, None)
    return found


def rank(options: Vector, state: Vector, keep: int) -> tuple[list[int], list[float]]:
    """Give the nearest options' places, the nearest first, and their cosines.

    Of equals the earlier comes first; a vector of zeros is as far as one at right angles.
    """
    rows, one = options.astype(np.float64), state.astype(np.float64)
    sizes = np.linalg.norm(rows, axis=1) * np.linalg.norm(one)
    cosines = np.zeros(len(rows))
    np.divide(rows @ one, sizes, out=cosines, where=sizes > 0)
    cosines = np.clip(cosines, -1.0, 1.0)
    order = np.argsort(-cosines, kind="stable")[:keep].tolist()
    return order, [float(cosines[at]) for at in order]


def _narrowed(question: dict[str, Any], options: Vector, state: Vector) -> Narrowed:
    names = tuple(question["criteria"])
    order, cosines = rank(options, state, question[FIELD])
    kept = tuple(names[at] for at in order)
    criteria = question["criteria"]
    if isinstance(criteria, dict):
        narrower: Any = {name: criteria[name] for name in kept}
    else:
        narrower = list(kept)
    reduced = _asked(question) | {"criteria": narrower}
    return Narrowed(reduced, names, question[FIELD], kept, tuple(cosines))


def _asked(question: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in question.items() if key != FIELD}

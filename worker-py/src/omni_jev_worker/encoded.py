"""A request as rows of tokens, and what becomes of the scores of its rows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from omni_jev_worker.memory import MemoryWatch
from omni_jev_worker.rows import Lost
from omni_jev_worker.scores import NotFinite, Scores


class Unanswerable(Exception):
    """A question that this checkpoint cannot answer, with the reason for its client."""

    def __init__(self, question: str, reason: str) -> None:
        super().__init__(reason)
        self.question = question
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Encoded:
    """A request's rows."""

    ids: tuple[str, ...]
    """The questions."""
    internal: dict[str, Any]
    """Laya's form of each question."""
    items: list[dict[str, Any]]
    """Laya's rows: token ids, positions of the options, type."""
    groups: tuple[int, ...]
    """How many rows, one after the other, each question has: more than one for many options."""
    lost: tuple[Lost, ...]
    """What was cut from each question's rows."""
    embeds: bool = False
    """Whether the rows are texts to be embedded, and no questions."""

    @property
    def tokens(self) -> int:
        """The tokens of all rows together, without padding."""
        return sum(self.lengths)

    @property
    def lengths(self) -> tuple[int, ...]:
        """The tokens of each row."""
        return tuple(len(item["ids"]) for item in self.items)

    def notes(self) -> dict[str, dict[str, Any]]:
        """Say of each question what Laya's answer does not: what was cut, how many groups."""
        noted: dict[str, dict[str, Any]] = {}
        for name, groups, lost in zip(self.ids, self.groups, self.lost, strict=True):
            note: dict[str, Any] = {}
            if lost:
                note["x_truncated"] = {
                    "state": lost.state,
                    "options": lost.options,
                    "instructions": lost.instructions,
                }
            if groups > 1:
                note["x_option_groups"] = groups
            noted[name] = note
        return noted

    def part(self, rows: Sequence[int]) -> "Encoded":
        """Give some of the rows, to run apart from the others."""
        return replace(self, items=[self.items[row] for row in rows])


@dataclass(frozen=True, slots=True)
class Started:
    """A pass that is under way."""

    wait: Callable[[], Scores]
    batch: Sequence[Encoded]

    def results(self) -> list[Scores | NotFinite]:
        """Wait for the pass; give the scores of each request's rows.

        Raises `OutOfMemory`, and what torch raises.
        """
        with MemoryWatch() as told:
            return self._split(self.wait())
        raise told.shortage

    def _split(self, scores: Scores) -> list[Scores | NotFinite]:
        results: list[Scores | NotFinite] = []
        start = 0
        for encoded in self.batch:
            end = start + len(encoded.items)
            part = Scores(scores.logits[start:end], scores.act[start:end])
            results.append(part if part.finite else NotFinite())
            start = end
        return results


def join_groups(encoded: Encoded, scores: Scores) -> tuple[list[int], Scores]:
    """Make one row of the rows of each question, as if its options had fitted one.

    Gives the options of each. The logits stand side by side as they are; the acts are those of the
    row with the best option.
    """
    logits, acts = [], []
    first = 0
    for groups in encoded.groups:
        rows = range(first, first + groups)
        counts = [len(encoded.items[row]["markers"]) for row in rows]
        parts = [scores.logits[row, :count] for row, count in zip(rows, counts, strict=True)]
        joined = np.concatenate(parts)
        best = max(rows, key=lambda row: parts[row - rows.start].max())
        logits.append(joined)
        acts.append(scores.act[best])
        first += groups
    most = max(map(len, logits))
    padded = [np.pad(row, (0, most - len(row))) for row in logits]
    return [len(row) for row in logits], Scores(np.stack(padded), np.stack(acts))

"""Accuracy and calibration of answers, and the temperatures that calibrate them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from laya.common import TEMP_MAX, TEMP_MIN, ece_score, temp_bucket

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Answer:
    """The probabilities that a question's options got, and the right one's index."""

    kind: str
    probabilities: Array
    label: int

    @property
    def correct(self) -> bool:
        """Whether the most probable option (the first, among equals) is the right one."""
        return int(self.probabilities.argmax()) == self.label

    @property
    def confidence(self) -> float:
        """The probability of the given answer."""
        return float(self.probabilities.max())

    @property
    def brier(self) -> float:
        """Squared distance from the certain right answer, summed over the options."""
        target = np.zeros_like(self.probabilities)
        target[self.label] = 1.0
        return float(((self.probabilities - target) ** 2).sum())


def summary(answers: list[Answer]) -> dict[str, float | int]:
    """Item count, accuracy, expected calibration error (15 equal bins) and Brier score."""
    confidence = np.array([answer.confidence for answer in answers])
    correct = np.array([answer.correct for answer in answers], dtype=np.float64)
    return {
        "items": len(answers),
        "accuracy": round(float(correct.mean()), 4),
        "ece": round(float(ece_score(confidence, correct)), 4),
        "brier": round(float(np.mean([answer.brier for answer in answers])), 4),
    }


def by_type(answers: list[Answer]) -> dict[str, dict[str, float | int]]:
    """The summary of each question type, and of all."""
    table = {}
    for kind in ("noul", "choice", "score"):
        part = [answer for answer in answers if answer.kind == kind]
        if part:
            table[kind] = summary(part)
    table["overall"] = summary(answers)
    return table


def softmax(logits: Array) -> Array:
    """Probabilities of one row of logits."""
    powers = np.exp(logits - logits.max())
    result: Array = powers / powers.sum()
    return result


def fit_temperatures(
    rows: list[tuple[int, Array, int]],
) -> tuple[list[float], dict[str, float]]:
    """Temperatures for (question type's number, logits, label) rows: by type, and by type and size.

    Each is the one in Laya's permitted range that makes the labels most likely.
    """
    types: list[float] = []
    for qtype in range(3):
        part = [(logits, label) for kind, logits, label in rows if kind == qtype]
        types.append(_fit(part) if part else 1.0)
    buckets: dict[str, list[tuple[Array, int]]] = {}
    for kind, logits, label in rows:
        buckets.setdefault(temp_bucket(kind, len(logits)), []).append((logits, label))
    sizes = {name: _fit(part) for name, part in sorted(buckets.items()) if len(part) >= 100}
    return types, sizes


def _fit(rows: list[tuple[Array, int]]) -> float:
    grid = np.geomspace(TEMP_MIN, TEMP_MAX, 120)
    losses = [
        -sum(float(np.log(softmax(logits / t)[label] + 1e-12)) for logits, label in rows)
        for t in grid
    ]
    return round(float(grid[int(np.argmin(losses))]), 3)

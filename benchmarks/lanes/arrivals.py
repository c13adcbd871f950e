"""When each request is due, and which: the same for every round."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.gpu.workload import ONE, QUESTIONS, Workload

SHORT: Final = 64
LONG: Final = 480
_SEED: Final = 20261130

KINDS: Final = {"short": 0.6, "long": 0.2, "four": 0.2}
"""The shares: one question of 64 tokens, one of 480, and four of 64 each."""

PERIOD_S: Final = 3.0
BURST_S: Final = 1.0
"""Of each period the first second has all of its requests: three times the mean rate."""


@dataclass(frozen=True)
class Due:
    """A request, and the moment from the round's beginning at which it is to be sent."""

    number: int
    at: float
    kind: str
    request: bytes


class Requests:
    """Makes requests of the three kinds, all different, for one checkpoint."""

    def __init__(self, checkpoint: Path) -> None:
        """Read the checkpoint's tokenizer, by which lengths are exact."""
        self._workload = Workload(checkpoint, _SEED)
        self._four = self._workload.equally_long(QUESTIONS[:4])

    def make(self, kinds: Sequence[str]) -> list[bytes]:
        """Make one request of each of these kinds."""
        return [self._make(kind) for kind in kinds]

    def _make(self, kind: str) -> bytes:
        if kind == "four":
            return self._workload.item(self._four, SHORT).request
        return self._workload.item(ONE, LONG if kind == "long" else SHORT).request


def mixture(count: int, seed: int = _SEED) -> list[str]:
    """Give so many kinds in their shares, in random order."""
    chance = random.Random(seed)
    return chance.choices(list(KINDS), list(KINDS.values()), k=count)


def bursts(rate: float, seconds: float, seed: int = _SEED) -> list[float]:
    """Give the moments of so many arrivals a second on average, all in bursts, random within."""
    chance = random.Random(seed)
    moments = []
    within = rate * PERIOD_S / BURST_S
    begin = 0.0
    while begin < seconds:
        moment = begin + chance.expovariate(within)
        while moment < min(begin + BURST_S, seconds):
            moments.append(moment)
            moment += chance.expovariate(within)
        begin += PERIOD_S
    return moments


def timetable(made: Requests, rate: float, seconds: float) -> list[Due]:
    """Give what is due when."""
    moments = bursts(rate, seconds)
    kinds = mixture(len(moments))
    requests = made.make(kinds)
    rows = zip(moments, kinds, requests, strict=True)
    return [Due(number, *row) for number, row in enumerate(rows)]

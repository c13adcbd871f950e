"""What is asked, and how much of it: the same requests for both servers."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.gpu.load import poisson
from benchmarks.gpu.table import SEQUENTIAL, sequential_key
from benchmarks.gpu.workload import LONGEST, ONE, QUESTIONS, SHORTEST, Item, Workload

SEED = 20261130
STAGES = (
    *(sequential_key(questions, tokens) for questions, tokens, *_ in SEQUENTIAL),
    "direct",
    "throughput",
    "poisson",
    "first",
    "ready",
    "memory",
    "parity",
)
CLIENTS = 64
ARRIVALS_PER_SECOND = 500.0
FEWEST = 300
"""Timed requests of one client, for a p99 that says something."""


@dataclass(frozen=True)
class Effort:
    """How much is asked of a server."""

    warm: int
    requests: int
    """Timed ones of each row of one client, at most."""
    sequential_s: float
    closed_s: float
    arrivals_s: float
    grace_s: float


def efforts(seconds: float) -> tuple[Effort, Effort]:
    """Give upstream's and ours; upstream, which has no hope under load, is asked for less."""
    theirs = Effort(5, 100, max(2.0, seconds), min(5.0, seconds), min(4.0, seconds), 2.0)
    return theirs, Effort(20, 1000, 4 * seconds, seconds, 1.875 * seconds, 5.0)


@dataclass(frozen=True)
class Plan:
    """The requests of all stages."""

    sequential: Mapping[str, Sequence[Item]]
    direct: Sequence[Item]
    first: Sequence[Item]
    """One for each start of a server."""
    throughput: Sequence[Item]
    arrivals: Sequence[Item]
    moments: Sequence[float]
    lengths: Sequence[Item]
    """One of every length."""
    mixed: Sequence[Mapping[str, Any]]
    """States and questions that are compared with the reference."""


def make(workload: Workload, effort: Effort, *, most_per_second: int) -> Plan:
    """Make all requests; `most_per_second` answers are expected at most."""
    timed = effort.warm + effort.requests
    sequential = {}
    for questions, tokens, *_ in SEQUENTIAL:
        asked = ONE if questions == 1 else workload.equally_long(QUESTIONS[:questions])
        sequential[sequential_key(questions, tokens)] = workload.items(asked, [tokens] * timed)
    moments = poisson(ARRIVALS_PER_SECOND, effort.arrivals_s, SEED)
    chance = random.Random(SEED)
    count = max(CLIENTS, round(effort.closed_s * most_per_second))
    return Plan(
        sequential=sequential,
        direct=workload.items(ONE, [64] * timed),
        first=workload.items(ONE, [64] * 4),
        throughput=workload.items(ONE, [128] * count),
        arrivals=workload.items(ONE, [chance.randint(SHORTEST, LONGEST) for _ in moments]),
        moments=moments,
        lengths=workload.items(ONE, range(SHORTEST, LONGEST + 1)),
        mixed=workload.mixed(),
    )

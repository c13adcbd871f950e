"""Pairs: a request to two servers, back to back, in an order left to chance; and what they say."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from benchmarks.gpu.reference import compare
from benchmarks.laya.asking import Client
from benchmarks.laya.figures import Interval, bootstrap
from benchmarks.laya.inputs import Input, timed
from benchmarks.laya.results import Line, table
from benchmarks.percentiles import percentile

_SEED = 20261130

Sides = tuple[Client, Client]


def plan(asked: Sequence[Input], count: int) -> Iterator[tuple[Input, bool]]:
    """Give inputs, and whether the second side is asked first, in rounds of shuffled order.

    Every round has each input once, so that what changes with time changes for all.
    """
    chance = random.Random(_SEED)
    for _ in range(count):
        for one in chance.sample(list(asked), len(asked)):
            yield one, chance.random() < 0.5


def ask_pair(sides: Sides, one: Input, *, swapped: bool, gap: float = 0.0) -> dict[str, Any]:
    """Ask both sides, each after so many idle seconds; the line. Raises `Refused`, `OSError`.

    The answers are read when both are there.
    """
    order = (1, 0) if swapped else (0, 1)
    took: dict[int, float] = {}
    answers: dict[int, Any] = {}
    for side in order:
        if gap:
            time.sleep(gap)
        seconds, body = sides[side].ask(one)
        took[side], answers[side] = seconds * 1000, body["answers"]
    line: dict[str, Any] = {
        "input": one.name,
        "title": one.title,
        "gap": gap,
        "a_ms": round(took[0], 4),
        "b_ms": round(took[1], 4),
        "first": "b" if swapped else "a",
    }
    try:
        found = compare([answers[1]], [answers[0]])
    except (ValueError, KeyError) as error:
        return line | {"incomparable": str(error)}
    return line | {"difference": found.largest, "mismatches": found.mismatches}


def ratio(lines: Sequence[Line]) -> Interval:
    """Estimate how long the second side takes as a share of the first, by pair."""
    return bootstrap([line["b_ms"] / line["a_ms"] for line in lines])


def difference(lines: Sequence[Line]) -> Interval:
    """Estimate how many milliseconds longer the second side takes, by pair."""
    return bootstrap([line["b_ms"] - line["a_ms"] for line in lines])


def grouped(
    lines: Iterable[Line], key: Callable[[Line], tuple[Any, ...]]
) -> Mapping[tuple[Any, ...], list[Line]]:
    """Put lines of equal keys together, in the order of the gaps and of the fixed inputs."""
    order = {one.title: number for number, one in enumerate(timed())}
    found: dict[tuple[Any, ...], list[Line]] = {}
    # Stable: one's own requests stay in the order in which they were asked first.
    for line in sorted(lines, key=lambda line: (line["gap"], order.get(line["title"], len(order)))):
        found.setdefault(key(line), []).append(line)
    return found


def medians(lines: Sequence[Line]) -> tuple[str, str]:
    """Give both sides' p50, in milliseconds."""
    p50s = (percentile([line[side] for line in lines], 0.5) for side in ("a_ms", "b_ms"))
    a, b = (f"{p50:.2f}" for p50 in p50s)
    return a, b


def summary(lines: Sequence[Line]) -> str:
    """Draw the table of a comparison: by idle gap and input."""
    head = ["", "idle before, s", "pairs", "a p50 ms", "b p50 ms", "b/a by pair (95 %)"]
    head += ["largest difference", "other best option"]
    rows = []
    for (title, gap), found in grouped(lines, lambda line: (line["title"], line["gap"])).items():
        row = [title, f"{gap:g}", str(len(found)), *medians(found), ratio(found).shown()]
        if any("incomparable" in line for line in found):
            row += ["not comparable", ""]
        else:
            row += [f"{max(line['difference'] for line in found):.4f}"]
            row += [str(sum(line["mismatches"] for line in found))]
        rows.append(row)
    return table(head, rows)

"""Percentiles, in the two ways in which the published figures have them."""

import math
from collections.abc import Iterable


def percentile(values: Iterable[float], share: float) -> float:
    """Give the smallest value that at least this share (0 to 1) of the values do not exceed."""
    ordered = _ordered(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def percentile_above(values: Iterable[float], share: float) -> float:
    """Give the next value where `percentile` falls on one exactly.

    What is published of `benchmarks/worker` is of this kind, and stays comparable with it.
    """
    ordered = _ordered(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _ordered(values: Iterable[float]) -> list[float]:
    ordered = sorted(values)
    if not ordered:
        raise ValueError("no values")
    return ordered

"""Numbers: read from other programs' text whatever the locale, and made of many measurements."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from benchmarks.percentiles import percentile

RESAMPLES: Final = 2000
_SEED: Final = 20261130


def decimal(text: str) -> float:
    """Read a number whose decimals stand after a point or, in other locales, a comma.

    A text with both has the thousands apart: the last of them is the decimal one. Raises
    `ValueError`.
    """
    plain = text.strip().replace("\N{NO-BREAK SPACE}", "").replace("\N{NARROW NO-BREAK SPACE}", "")
    if "," in plain and "." in plain:
        thousands = "," if plain.rfind(",") < plain.rfind(".") else "."
        plain = plain.replace(thousands, "")
    if plain.count(",") > 1:
        raise ValueError(f"no number: {text!r}")
    return float(plain.replace(",", "."))


class Interval(NamedTuple):
    """An estimate and the interval that it lies in with 95 % confidence."""

    value: float
    low: float
    high: float

    def shown(self, digits: int = 2, sign: str = "") -> str:
        """Write it as `0.73 (0.69 to 0.79)`."""
        form = f"{sign}.{digits}f"
        return f"{self.value:{form}} ({self.low:{form}} to {self.high:{form}})"


def bootstrap(
    values: Sequence[float],
    statistic: Callable[[Sequence[float]], float] = statistics.median,
    resamples: int = RESAMPLES,
) -> Interval:
    """Estimate a statistic of what these are a sample of; the same each time. Raises `ValueError`.

    The interval is the percentile bootstrap's.
    """
    if not values:
        raise ValueError("no values")
    chance = random.Random(_SEED)
    drawn = sorted(statistic(chance.choices(values, k=len(values))) for _ in range(resamples))
    return Interval(statistic(values), percentile(drawn, 0.025), percentile(drawn, 0.975))

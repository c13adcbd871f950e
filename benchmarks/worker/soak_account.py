"""What a soak of the worker saw, and whether that is good enough."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field

from benchmarks.percentiles import percentile_above

GROWTH_BAR = 1.1
"""How much more than at its beginning the footprint may be, once it has settled."""
HEALTH_BAR_MS = 50.0
MIB = 1024 * 1024


@dataclass(frozen=True)
class Sample:
    """One second of the run, from the `/health` that was asked for then."""

    second: float
    footprint_bytes: int
    releases: int
    lengths_seen: int
    depth: int
    batches: int
    rows: int


@dataclass
class Account:
    """Everything that happened; `minutes` is how long it was to take."""

    minutes: float
    samples: list[Sample] = field(default_factory=list)
    answer_ms: list[float] = field(default_factory=list)
    health_ms: list[float] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    """What was wrong or lost, by what it was."""

    @property
    def settled(self) -> float:
        """From which second on the footprint has to stay: after five minutes, less in a trial."""
        return min(300.0, self.minutes * 60 / 2)

    @property
    def growth(self) -> float:
        """The highest footprint of a minute, as a share of that of the first one after settling.

        A minute counts by its median: a release in it moves single samples, and not the level.
        """
        levels = list(self._levels())
        return max(levels) / levels[0] if levels else float("inf")

    def misses(self) -> list[str]:
        """Give a sentence for each bar that was missed."""
        missed = [f"{count} times: {what}" for what, count in self.faults.items()]
        if not self.answer_ms:
            missed.append("nothing was answered")
        if not self.samples or self.samples[-1].releases == 0:
            missed.append("no memory was released, so that releases were not tried")
        if self.growth > GROWTH_BAR:
            missed.append(f"the footprint grew to {self.growth:.3f} of what it was after settling")
        return missed

    def table(self) -> str:
        """The account as Markdown."""
        wrong = sum(self.faults.values())
        levels = [level / MIB for level in self._levels()]
        late = sum(ms > HEALTH_BAR_MS for ms in self.health_ms)
        last = self.samples[-1]
        rows = {
            "answers, each checked": f"{len(self.answer_ms)}",
            "**wrong or lost**": f"**{wrong}**",
            "answers/s": f"{len(self.answer_ms) / last.second:.1f}",
            "p50, p99, longest of an answer": _percentiles(self.answer_ms, "ms"),
            "questions run, in batches": f"{last.rows} in {last.batches}",
            "different lengths run": f"{last.lengths_seen}",
            "`/health` asked": f"{len(self.health_ms)} ({len(self.health_ms) / last.second:.1f}/s)",
            "p50, p99, longest of `/health`": _percentiles(self.health_ms, "ms"),
            "`/health` over 50 ms": f"{late} ({100 * late / len(self.health_ms):.2f} %)",
            "releases of memory": f"{last.releases}",
            f"footprint in the minute after the first {self.settled:.0f} s": f"{levels[0]:.1f} MiB",
            "lowest, highest, last of a later minute": " / ".join(
                f"{level:.1f}" for level in (min(levels), max(levels), levels[-1])
            )
            + " MiB",
            "highest against the first": f"{self.growth:.3f} (bar {GROWTH_BAR})",
        }
        lines = ["| | |", "| --- | ---: |"]
        return "\n".join(lines + [f"| {name} | {value} |" for name, value in rows.items()])

    def records(self) -> Iterator[dict[str, object]]:
        """Give the samples, then a summary, as JSON objects."""
        for sample in self.samples:
            yield asdict(sample)
        yield {
            "answers": len(self.answer_ms),
            "faults": dict(self.faults),
            "growth": self.growth,
            "misses": self.misses(),
        }

    def _levels(self) -> Iterator[float]:
        minutes: dict[int, list[int]] = {}
        for sample in self.samples:
            if sample.second >= self.settled:
                minute = int((sample.second - self.settled) // 60)
                minutes.setdefault(minute, []).append(sample.footprint_bytes)
        return (statistics.median(level) for level in minutes.values())


def _percentiles(values: list[float], unit: str) -> str:
    shown = (percentile_above(values, 0.5), percentile_above(values, 0.99), max(values))
    return " / ".join(f"{value:.1f}" for value in shown) + f" {unit}"

"""The table: its rows with their bars, and what each figure says of its bar."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

Figure = float | str
"""A number in its row's unit, or why there is none."""

NOT_RUN: Final = "not run"
"""Begins the text of a figure that was left out, rather than failed."""

UNDER_LOAD: Final = "fails"
"""Begins the text of a figure that does not stand, since requests failed or were not finished."""

_LONGEST_REASON: Final = 160
"""Characters of it in a cell; all of it is among the raw results."""

SEQUENTIAL: Final = (
    # Questions, tokens, p50's bar and aim in ms, published of an Apple M1 Pro.
    (1, 64, 3.0, 2.2, "35 at 68 tokens"),
    (1, 512, 4.0, 3.0, ""),
    (3, 128, 4.0, 3.0, ""),
    (6, 128, 5.0, 3.5, ""),
)


@dataclass(frozen=True)
class Bar:
    """What a figure must reach, and what it should."""

    bar: float
    aim: float
    least: bool = False
    """Whether more is better."""

    def reached(self, value: float, limit: float) -> bool:
        """Say whether a value is good enough."""
        return value >= limit if self.least else value <= limit


@dataclass(frozen=True)
class Row:
    """One line."""

    key: str
    title: str
    bar: Bar | None = None
    digits: int = 2
    published: str = ""
    """The same of an Apple M1 Pro (16 GB, macOS 26.1), as laya's recipe for Macs has it."""

    @property
    def stage(self) -> str:
        """Name the stage that measures it."""
        first = self.key.partition(".")[0]
        return "parity" if first in ("difference", "mismatches") else first


def sequential_key(questions: int, tokens: int) -> str:
    """Name the row of one client's p50."""
    return f"{questions}x{tokens}"


def _sequential_rows() -> list[Row]:
    rows = []
    for questions, tokens, bar, aim, published in SEQUENTIAL:
        key = sequential_key(questions, tokens)
        title = f"{questions} question{'s' * (questions > 1)}, {tokens} tokens, 1 client"
        rows.append(Row(f"{key}.p50", f"{title}: p50 ms", Bar(bar, aim), published=published))
        rows.append(Row(f"{key}.spread", f"{title}: p99 over p50", Bar(1.5, 1.2)))
    return rows


ROWS: Final = (
    *_sequential_rows(),
    Row("direct.p50", "1 question, 64 tokens, to the worker itself: p50 ms"),
    Row("throughput", "128 tokens, 64 clients: answers/s", Bar(1500, 3000, least=True), 0),
    Row("throughput.p50", "the same: p50 ms", digits=1),
    Row("poisson.p50", "500 requests/s, 48 to 512 tokens: p50 ms"),
    Row("poisson.p99", "the same: p99 ms", Bar(30, 15)),
    Row("first", "first request after ready, over p50", Bar(2, 1.2), published="1.8 to 2.2"),
    Row("ready.cold", "ready, compile cache empty: s", Bar(90, 45), 1, "35 to 39"),
    Row("ready.warm", "ready, compile cache full: s", Bar(25, 15), 1),
    Row("memory", "device memory after every length: GB", Bar(2.5, 1.5), 2, "the process 5.2"),
    Row("memory.process", "the same, of the processes as nvidia-smi says: GB"),
    Row("difference", "largest difference of a probability, alone", Bar(0.02, 0.005), 4, "0.0031"),
    Row("difference.together", "the same, all in flight at once", Bar(0.02, 0.005), 4),
    Row("mismatches", "other best option where the margin is over 0.04", Bar(0, 0), 0),
    Row("complaints", "faults that `/health` tells of at the end", Bar(0, 0), 0),
)


@dataclass(frozen=True)
class Table:
    """Both servers' figures by row."""

    upstream: Mapping[str, Figure]
    ours: Mapping[str, Figure]
    judged: bool
    """Whether the bars hold here: they are for one H200."""
    published: bool = False
    """Whether to show what was published for Apple machines."""

    def verdict(self, row: Row) -> str:
        """Say whether our figure meets its bar."""
        value = self.ours.get(row.key, NOT_RUN)
        judged = self.judged or row.key in ALWAYS
        if isinstance(value, str):
            if value.startswith(NOT_RUN):
                return NOT_RUN
            return "no bar" if value.startswith(UNDER_LOAD) and not judged else "FAILED"
        if row.bar is None or not judged:
            return "no bar"
        if not row.bar.reached(value, row.bar.bar):
            return "NOT MET"
        return "met, aim too" if row.bar.reached(value, row.bar.aim) else "met"

    def misses(self) -> list[str]:
        """Give the rows that failed or do not meet their bar."""
        said = {row: self.verdict(row) for row in ROWS}
        return [
            f"{row.title}: {verdict} ({_shown(self.ours.get(row.key), row)})"
            for row, verdict in said.items()
            if verdict in ("FAILED", "NOT MET")
        ]

    def markdown(self) -> str:
        """Draw it."""
        heads = ["", "upstream", "omni-jev", "ratio", "bar (aim)", "met?"]
        heads += ["published, M1 Pro"] * self.published
        lines = [heads, ["---"] * len(heads)]
        for row in ROWS:
            theirs, mine = self.upstream.get(row.key), self.ours.get(row.key)
            cells = [row.title, _shown(theirs, row), _shown(mine, row), _ratio(mine, theirs)]
            cells += [_limits(row.bar), self.verdict(row)]
            lines.append(cells + [row.published] * self.published)
        return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


ALWAYS: Final = frozenset({"difference", "difference.together", "mismatches", "complaints"})
"""Rows whose bars hold on every device: they are about right and wrong."""


def not_run(reason: str, rows: Sequence[Row] = ROWS) -> dict[str, Figure]:
    """Mark rows as not run, with the reason."""
    return {row.key: f"{NOT_RUN}: {reason}" for row in rows}


def _shown(figure: Figure | None, row: Row) -> str:
    if figure is None:
        return ""
    if isinstance(figure, str):
        text = figure.replace("|", "/").replace("\n", " ")
        return text if len(text) <= _LONGEST_REASON else f"{text[:_LONGEST_REASON]}…"
    return f"{figure:,.{row.digits}f}"


def _ratio(mine: Figure | None, theirs: Figure | None) -> str:
    if not isinstance(mine, float | int) or not isinstance(theirs, float | int) or not theirs:
        return ""
    return f"{mine / theirs:.3g}"


def _limits(bar: Bar | None) -> str:
    if bar is None:
        return ""
    return f"{'≥' if bar.least else '≤'} {bar.bar:g} ({bar.aim:g})"

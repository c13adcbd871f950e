"""The tables of recorded results again, whichever program measured them, from the raw lines alone.

    python benchmarks/laya/again.py benchmarks/laya/results/lengths_feasibility.jsonl

What a page shows of a run can so be had from its file; `report.py` makes plots besides. Runs of
`bench_inproc` and `bench_http` are told together, and so are pairs of equal sides.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.laya import (
    fallback,
    late_load,
    lengths,
    overhead,
    paired,
    profile,
    shortlist,
    tables,
)
from benchmarks.laya.results import Run, read

_MEASURED = ("bench_inproc", "bench_http")


def _together(runs: Sequence[Run]) -> str:
    parts = [tables.starts_table(runs), tables.warm_table(runs), tables.arrivals_table(runs)]
    return "\n\n".join(parts)


def _each(drawn: Callable[[Run], str]) -> Callable[[Sequence[Run]], str]:
    return lambda runs: "\n\n".join(f"{run.id} {run.config}\n\n{drawn(run)}" for run in runs)


_TABLES: Mapping[str, Callable[[Sequence[Run]], str]] = {
    "fallback": _each(fallback.told),
    "late_load": _each(lambda run: late_load.summary(run.of("late"))),
    "lengths": _each(lambda run: lengths.summary(run.of("length"), run.one("before")["bytes"])),
    "overhead": _each(lambda run: overhead.summary(run.of("pair"))),
    "paired": paired.summarize,
    "profile": _each(lambda run: profile.summary(run.of("spans"))),
    "shortlist": _each(lambda run: shortlist.summary(run.of("asked"))),
}


def tables_of(runs: Sequence[Run]) -> str:
    """Draw what each program printed. Raises `ValueError` for a program that is not known."""
    unknown = {run.program for run in runs} - {*_TABLES, *_MEASURED}
    if unknown:
        raise ValueError(f"no tables of {', '.join(sorted(unknown))}")
    parts = []
    if measured := [run for run in runs if run.program in _MEASURED]:
        tables.check_joinable(measured)
        parts.append(_together(measured))
    for program, drawn in _TABLES.items():
        # A run that failed has told all it has.
        if found := [run for run in runs if run.program == program and not run.of("failed")]:
            parts.append(f"## {program}\n\n{drawn(found)}")
    return "\n\n".join(parts)


def main() -> int:
    """Read the files and print their tables; the exit code."""
    made = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    made.add_argument("files", type=Path, nargs="+", help="of any program but report")
    try:
        print(tables_of(read(made.parse_args().files)))
    except (OSError, ValueError) as error:
        raise SystemExit(f"error: {error}") from None
    return 0


if __name__ == "__main__":
    sys.exit(main())

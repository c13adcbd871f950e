"""Two servers compared: every request to both, back to back, in random order.

    python benchmarks/laya/paired.py --run feasibility --a "--forward laya" --b ""
    python benchmarks/laya/paired.py --run feasibility --a C3 --b C5 --gap 0,2
    python benchmarks/laya/paired.py --summarize benchmarks/laya/results/paired_feasibility.jsonl

A side is the worker's flags, a configuration (C3, C4, C3w, C3o, C5), or a running server's URL.
Both are alive all the time. The ratio is taken by pair, with a bootstrap interval of its median.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.laya import pairs
from benchmarks.laya.asking import Client
from benchmarks.laya.inputs import Input
from benchmarks.laya.results import Run, read
from benchmarks.laya.session import (
    Session,
    add_inputs,
    add_servers,
    chosen_inputs,
    guarded,
    parser,
)


def measure(run: Session, asked: Sequence[Input]) -> None:
    """Start both sides and ask them; print the table."""
    options = run.options
    gaps = [float(each) for each in options.gap.split(",")]
    starter = run.starter(options=shlex.split(options.options))
    subjects = [starter.side(options.a), starter.side(options.b)]
    run.results.record(
        "sides",
        a=options.a,
        b=options.b,
        ready_s=[each.ready_s for each in subjects],
        commands=[each.command for each in subjects],
    )
    run.bars.say(f"a: {subjects[0].name}; b: {subjects[1].name}; both are ready")
    a, b = Client(subjects[0]), Client(subjects[1])
    for one in asked:
        for _ in range(options.warmup):
            a.ask(one)
            b.ask(one)
    lines = []
    for gap in gaps:
        whole = options.count * len(asked)
        planned = pairs.plan(asked, options.count)
        for one, swapped in run.bars.over(f"pairs, {gap:g} s idle before", planned, whole):
            line = pairs.ask_pair((a, b), one, swapped=swapped, gap=gap)
            run.results.record("pair", **line)
            lines.append(line)
    run.results.record("health", a=subjects[0].health(), b=subjects[1].health())
    print(told(options.a, options.b, pairs.summary(lines)))


def told(a: str, b: str, table: str) -> str:
    """Write a comparison with its sides' names."""
    return f"a: `{a or 'no flags'}`, b: `{b or 'no flags'}`\n\n{table}"


def summarize(runs: Sequence[Run]) -> str:
    """Write the tables of recorded runs: those of equal sides together."""
    found: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        sides = run.one("sides")
        if sides and run.of("pair"):
            found.setdefault((sides["a"], sides["b"]), []).append(run)
    if not found:
        raise ValueError("no pairs in these files")
    parts = []
    for (a, b), equal in found.items():
        lines = [line for run in equal for line in run.of("pair")]
        broken = sum(not run.ended for run in equal)
        note = f"\n\n{broken} of {len(equal)} runs broken off" if broken else ""
        parts.append(told(a, b, pairs.summary(lines)) + note)
    return "\n\n".join(parts)


def arguments() -> argparse.ArgumentParser:
    """Give its flags."""
    made = parser(__doc__)
    made.add_argument("--a", default="", help="a side: flags, a configuration, or a URL")
    made.add_argument("--b", default="", help="the other side")
    made.add_argument("--options", default="--compile --weights fp16", help="what C3o adds")
    made.add_argument("--gap", default="0", help="idle seconds before each request: N,N")
    made.add_argument("--count", type=int, default=100, help="pairs of each input and gap")
    made.add_argument("--warmup", type=int, default=5, help="of each input, which do not count")
    made.add_argument("--summarize", type=Path, nargs="+", help="only print recorded files' tables")
    add_servers(made)
    add_inputs(made)
    return made


def main() -> int:
    """Read the command line and measure; the exit code."""
    options = arguments().parse_args()
    if options.summarize:
        try:
            print(summarize(read(options.summarize)))
        except (OSError, ValueError) as error:
            raise SystemExit(f"error: {error}") from None
        return 0
    asked = chosen_inputs(options)
    return guarded("paired", "", options, lambda run: measure(run, asked))


if __name__ == "__main__":
    sys.exit(main())

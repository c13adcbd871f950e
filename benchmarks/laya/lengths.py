"""New lengths: what the first request of each costs more than the next, and the memory it adds.

    python benchmarks/laya/lengths.py --run feasibility --step 16
    python benchmarks/laya/lengths.py --run paper --side C3o --device cuda

One question with states of exactly so many tokens, in random order, each length three times in a
row with three different states. What the first takes more than the median of the others is what the
length cost; what the processes hold is read after each length.
"""

from __future__ import annotations

import argparse
import random
import shlex
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.gpu.workload import LONGEST, ONE, SHORTEST, Item, Workload
from benchmarks.laya.asking import Client
from benchmarks.laya.figures import bootstrap
from benchmarks.laya.processes import held_by
from benchmarks.laya.results import Line, table
from benchmarks.laya.session import Session, add_servers, guarded, parser
from benchmarks.laya.tables import MIB

_SEED = 20261130
_TIMES = 3


def plan(workload: Workload, lengths: Sequence[int]) -> list[tuple[int, list[Item]]]:
    """Give each length, in an order left to chance, with its different requests."""
    shuffled = random.Random(_SEED).sample(list(lengths), len(lengths))
    return [(length, workload.items(ONE, [length] * _TIMES)) for length in shuffled]


def measure(run: Session) -> None:
    """Ask all lengths, and print the table."""
    options = run.options
    lengths = range(options.shortest, options.longest + 1, options.step)
    planned = plan(Workload(run.folder), lengths)
    subject = run.starter(options=shlex.split(options.options)).side(options.side)
    client = Client(subject)
    before = held_by(subject.roots)
    run.results.record("before", bytes=before, health=subject.health())
    lines: list[Line] = []
    for length, items in run.bars.over("lengths", planned, len(planned)):
        first, *again = [client.time(item) * 1000 for item in items]
        held = held_by(subject.roots)
        line = {"tokens": length, "first_ms": first, "again_ms": again, "bytes": held}
        run.results.record("length", **line)
        lines.append(line)
    client.close()
    run.results.record("health", health=subject.health())
    print(summary(lines, before))


def summary(lines: Sequence[Line], before: int) -> str:
    """Draw the table: by quarters of the lengths in the order in which they came."""
    head = ["lengths seen", "first costs more, ms (95 %)", "again p50 ms", "held, MiB"]
    rows = [["none", "", "", f"{before / MIB:.0f}"]]
    quarter = -(-len(lines) // 4)
    for start in range(0, len(lines), quarter):
        part = lines[start : start + quarter]
        again = statistics.median(each for line in part for each in line["again_ms"])
        held = f"{part[-1]['bytes'] / MIB:.0f}"
        rows.append([f"{start + 1} to {start + len(part)}", more(part), f"{again:.1f}", held])
    added = lines[-1]["bytes"] - before
    each = f"{added / len(lines) / 1024:.0f} KiB each on average, {added / MIB:.0f} MiB in all"
    told = f"{len(lines)} lengths; {each}; {more(lines)} ms once"
    return f"{table(head, rows)}\n\n{told}"


def more(lines: Sequence[Line]) -> str:
    """Estimate the median of what first requests take more than the next of their length."""
    return bootstrap(
        [line["first_ms"] - statistics.median(line["again_ms"]) for line in lines]
    ).shown(2, "+")


def arguments() -> argparse.ArgumentParser:
    """Give its flags."""
    made = parser(__doc__)
    made.add_argument("--side", default="", help="flags, a configuration, or a URL")
    made.add_argument("--options", default="--compile --weights fp16", help="what C3o adds")
    made.add_argument("--shortest", type=int, default=SHORTEST, help="tokens of a row")
    made.add_argument("--longest", type=int, default=LONGEST, help="tokens of a row")
    made.add_argument("--step", type=int, default=1, help="from one length to the next")
    add_servers(made)
    return made


def main() -> int:
    """Read the command line and measure; the exit code."""
    options = arguments().parse_args()
    return guarded("lengths", "", options, measure)


if __name__ == "__main__":
    sys.exit(main())

"""The frontend's own cost: requests straight to a real worker and through the frontend, in pairs.

    python benchmarks/laya/overhead.py --run feasibility

By default the frontend supervises the worker and both ways end at its Unix socket; with `--tcp` the
worker listens on a port and the frontend forwards there. As a control the worker is asked in pairs
on two direct connections as well: what those differ by is what this machine cannot tell apart.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.gpu.servers import OmniJev
from benchmarks.laya import pairs
from benchmarks.laya.asking import Client
from benchmarks.laya.inputs import Input
from benchmarks.laya.results import Line, table
from benchmarks.laya.session import (
    Session,
    add_inputs,
    add_servers,
    chosen_inputs,
    guarded,
    parser,
)
from benchmarks.laya.subjects import Starter, Subject


def both_ways(starter: Starter, *, tcp: bool) -> tuple[Subject, Subject]:
    """Start a worker and a frontend; the way straight to the worker, and the one through both."""
    if tcp:
        direct = starter.worker([], "the worker")
        return direct, starter.frontend(direct, "through the frontend")
    through = starter.config("C5")
    (server,) = through.servers
    if not isinstance(server, OmniJev):
        raise TypeError("C5 is a frontend")
    return Subject("the worker's socket", server.worker_address()), through


def measure(run: Session, asked: Sequence[Input]) -> None:
    """Ask both ways, and print the table."""
    options = run.options
    direct, through = both_ways(run.starter(), tcp=options.tcp)
    run.results.record("ways", direct=str(direct.address), through=str(through.address))
    clients = {"direct": Client(direct), "again": Client(direct), "through": Client(through)}
    for one in asked:
        for _ in range(options.warmup):
            for client in clients.values():
                client.ask(one)
    lines: list[dict[str, Any]] = []
    whole = options.count * len(asked)
    planned = pairs.plan(asked, options.count)
    for one, swapped in run.bars.over("pairs", planned, whole):
        for other in ("through", "again"):
            sides = (clients["direct"], clients[other])
            line = pairs.ask_pair(sides, one, swapped=swapped)
            line |= {"to": other}
            run.results.record("pair", **line)
            lines.append(line)
    print(summary(lines))


def summary(lines: Sequence[Line]) -> str:
    """Draw what the frontend adds to each input, beside what the control does."""
    head = ["", "pairs", "direct p50 ms", "through p50 ms", "adds ms, by pair (95 %)"]
    head += ["control: direct again, ms"]
    rows = []
    for (title,), found in pairs.grouped(lines, lambda line: (line["title"],)).items():
        through = [line for line in found if line["to"] == "through"]
        control = [line for line in found if line["to"] == "again"]
        adds = pairs.difference(through).shown(3, "+")
        shown = [*pairs.medians(through), adds, pairs.difference(control).shown(3, "+")]
        rows.append([title, str(len(through)), *shown])
    return table(head, rows)


def arguments() -> argparse.ArgumentParser:
    """Give its flags."""
    made = parser(__doc__)
    made.add_argument("--tcp", action="store_true", help="the worker on a port, not supervised")
    made.add_argument("--count", type=int, default=100, help="pairs of each input")
    made.add_argument("--warmup", type=int, default=5, help="of each input, which do not count")
    add_servers(made)
    add_inputs(made)
    return made


def main() -> int:
    """Read the command line and measure; the exit code."""
    options = arguments().parse_args()
    asked = chosen_inputs(options)
    return guarded(
        "overhead", "tcp" if options.tcp else "unix", options, lambda run: measure(run, asked)
    )


if __name__ == "__main__":
    sys.exit(main())

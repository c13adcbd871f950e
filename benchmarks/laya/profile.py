"""Where a request's time goes, by spans: frontend, queue, tokenize, copy, device, decode.

    python benchmarks/laya/profile.py --run feasibility

One client asks the worker, with a clock at each of its steps, in turn directly and through the
frontend. What the worker noted within a request is the request's. Writes the spans as trace events
beside the results, for https://ui.perfetto.dev.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.laya import spans
from benchmarks.laya.asking import Client
from benchmarks.laya.inputs import Input, timed
from benchmarks.laya.pairs import plan
from benchmarks.laya.results import Line, table
from benchmarks.laya.session import (
    Session,
    add_inputs,
    add_servers,
    chosen_inputs,
    guarded,
    parser,
)

_PROGRAM = Path(__file__).resolve().parent / "profile_worker.py"


def measure(run: Session, asked: Sequence[Input]) -> None:
    """Ask both ways, end the worker, and sort its spans; print the table."""
    options = run.options
    noted = run.scratch / "spans.jsonl"
    starter = run.starter()
    direct = starter.worker([], "the worker", program=[str(_PROGRAM), str(noted)])
    through = starter.frontend(direct, "through the frontend")
    clients = {"direct": Client(direct), "through": Client(through)}
    for one in asked:
        for _ in range(options.warmup):
            for client in clients.values():
                client.ask(one)
    requests: list[tuple[str, Input, spans.Span]] = []
    for one, swapped in run.bars.over(
        "requests", plan(asked, options.count), options.count * len(asked)
    ):
        for way in ("through", "direct") if swapped else ("direct", "through"):
            begun = time.perf_counter_ns()
            clients[way].ask(one)
            requests.append((way, one, spans.Span("request", begun, time.perf_counter_ns())))
    for server in reversed(through.servers):
        server.stop()
    found = spans.read(noted)
    lines: list[Line] = []
    for way, one, request in requests:
        parts = spans.steps(request, spans.within(found, request))
        line = {"way": way, "input": one.name, "title": one.title, "ms": request.ms, "steps": parts}
        run.results.record("spans", **line)
        lines.append(line)
    trace = run.results.path.with_suffix(".trace.json")
    drawn = spans.trace([(f"{one.name}, {way}", span) for way, one, span in requests], found)
    trace.write_text(json.dumps(drawn), encoding="utf-8")
    run.bars.say(f"trace events: {trace}")
    print(summary(lines))


def summary(lines: Sequence[Line]) -> str:
    """Draw the table: the median milliseconds of each step, by input, through the frontend."""
    # Rounds are shuffled; the fixed inputs have an order of their own.
    titles = list(dict.fromkeys(line["title"] for line in lines))
    order = [one.title for one in timed()]
    titles.sort(key=lambda title: order.index(title) if title in order else len(order))
    columns = {
        title: _medians([line for line in lines if line["title"] == title]) for title in titles
    }
    rows = [
        [told, *(f"{columns[t][step]:.3f}" for t in titles)] for step, told in spans.STEPS.items()
    ]
    rows.append(["**sum of these**", *(f"{sum(columns[t].values()):.3f}" for t in titles)])
    measured = []
    for title in titles:
        through = [ln["ms"] for ln in lines if ln["title"] == title and ln["way"] == "through"]
        measured.append(f"{statistics.median(through):.3f}")
    rows.append(["**the request, as its client sees it**", *measured])
    return f"Medians in ms, one client, through the frontend\n\n{table(['', *titles], rows)}"


def _medians(lines: Sequence[Line]) -> Mapping[str, float]:
    """Give each step's median; the frontend's is what the way through it has more outside."""
    through = [line["steps"] for line in lines if line["way"] == "through"]
    direct = [line["steps"] for line in lines if line["way"] == "direct"]
    outside = statistics.median(each["outside"] for each in direct)
    whole = statistics.median(each["outside"] for each in through)
    found = {"frontend": whole - outside, "sockets": outside}
    for step in spans.STEPS:
        if step not in found:
            found[step] = statistics.median(each[step] for each in through)
    return found


def arguments() -> argparse.ArgumentParser:
    """Give its flags."""
    made = parser(__doc__)
    made.add_argument("--count", type=int, default=50, help="requests of each input, on each way")
    made.add_argument("--warmup", type=int, default=5, help="of each input, which do not count")
    add_servers(made)
    add_inputs(made)
    return made


def main() -> int:
    """Read the command line and measure; the exit code."""
    options = arguments().parse_args()
    asked = chosen_inputs(options)
    return guarded("profile", "", options, lambda run: measure(run, asked))


if __name__ == "__main__":
    sys.exit(main())

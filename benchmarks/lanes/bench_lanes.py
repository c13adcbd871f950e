"""One lane against two: short requests among long ones, in bursts, and a lane that dies.

    .venv/bin/python benchmarks/lanes/bench_lanes.py --second "--model demo --threads 1"

Both servers are started one after the other, and get the same requests at the same moments. The
first is asked as fast as it answers before that, and the rate of the bursts is a share of what it
gave. Raw JSON lines go to `results/`, the table to standard output and beside them.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.gpu.servers import ROOT
from benchmarks.lanes import lane_report as report
from benchmarks.lanes.arrivals import Due, Requests, mixture, timetable
from benchmarks.lanes.lane_load import Answered
from benchmarks.lanes.lane_servers import Lane, Served, can_pin
from benchmarks.lanes.senders import Senders
from benchmarks.laya import conditions

RESULTS: Final = Path(__file__).resolve().parent / "results"
WORKER: Final = "--model demo --threads 1 --max-queue 4096"
HELPER: Final = "max_tokens = 128\nmax_questions = 1\nhelps = true"
_WARM: Final = 300
_POOL: Final = 3000
"""Different requests of a load without a timetable, before they repeat."""


class Log:
    """Appends raw lines."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path

    def record(self, line: str, **what: Any) -> None:
        """Append one, which begins with what it is."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"line": line, **what}) + "\n")

    def told(self, served: Served, name: str) -> None:
        """Append what the servers of a round warned of, and how they are."""
        for line in served.warnings():
            self.record("told", round=name, told=line)
        self.record("health", round=name, health=served.health())

    def differing(self, name: str, one: Sequence[Answered], other: Sequence[Answered]) -> None:
        """Append each answer that is another than in the first round."""
        for each in report.unlike(one, other):
            self.record("differs", round=name, **each)


def main() -> int:
    """Run all rounds; 1 if a bar was missed."""
    options = _options()
    state = conditions.now()
    refusal = state.refusal(options.run, options.max_load)
    if refusal is not None:
        print(refusal, file=sys.stderr)
        return 75
    made, senders = Requests(options.checkpoint), Senders(options.senders)
    pinned = can_pin() and not options.free
    moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    log = Log(RESULTS / f"{options.run}-{moment}.jsonl")
    log.record(
        "meta",
        conditions=state.record(),
        pinned=pinned,
        machine=platform.machine(),
        system=platform.platform(),
        cores=os.cpu_count(),
        options={name: str(value) for name, value in vars(options).items()},
    )
    cores = (0, 1 % (os.cpu_count() or 1)) if pinned else (None, None)
    first = Lane("main", options.first, core=cores[0])
    second = Lane("second", options.second, options.settings, core=cores[1])
    with Served(options.binary, [first]) as served:
        _say("one lane")
        warm(served, made)
        one_rate = saturate(served, made, senders, options.seconds / 4)
        table = timetable(made, options.busy * one_rate, options.seconds)
        _say(f"{one_rate:.1f}/s at most; {len(table)} requests in {options.seconds:g} s")
        one = arrive(served, table, senders, log, "one")
        log.told(served, "one")
    with Served(options.binary, [first, second]) as served:
        _say("two lanes")
        warm(served, made)
        two_rate = saturate(served, made, senders, options.seconds / 4)
        _say(f"{two_rate:.1f}/s at most")
        two = arrive(served, table, senders, log, "two")
        kills = [kill(served, table, senders, log, lane.name, one) for lane in (first, second)]
        log.told(served, "two")
    throughput = (one_rate, two_rate)
    differences, ties = report.differing(one, two), report.near_ties(one, two)
    log.differing("two", one, two)
    text = report.table(
        report.figures(one),
        report.figures(two),
        throughput=throughput,
        differences=differences,
        ties=ties,
        kills=kills,
    )
    log.record(
        "end",
        one=asdict(report.figures(one)),
        two=asdict(report.figures(two)),
        throughput=throughput,
        differences=differences,
        near_ties=ties,
        kills=[asdict(each) for each in kills],
    )
    log.path.with_suffix(".md").write_text(text + "\n", encoding="utf-8")
    print(text)
    return int("**missed**" in text)


def warm(served: Served, made: Requests) -> None:
    """Let every kind be answered often enough that lengths are known and estimates are made."""
    Senders(1).most(served.address, made.make(mixture(_WARM, seed=1)), 2, 4.0)


def saturate(served: Served, made: Requests, senders: Senders, seconds: float) -> float:
    """Give the answers a second of a server that always has something to do."""
    return senders.most(served.address, made.make(mixture(_POOL, seed=2)), 32, seconds)


def arrive(
    served: Served, table: Sequence[Due], senders: Senders, log: Log, name: str
) -> list[Answered]:
    """Send what is due; its raw lines and the trace's."""
    before = len(served.traced())
    answered = senders.arrive(served.address, table)
    for each in answered:
        log.record("answer", round=name, **each.record())
    for line in served.traced()[before:]:
        log.record("trace", round=name, **line)
    return answered


def kill(
    served: Served,
    table: Sequence[Due],
    senders: Senders,
    log: Log,
    lane: str,
    right: Sequence[Answered],
) -> report.Kill:
    """Send the same at half the rate, and end a lane's process after a third of the time."""
    slower = [Due(each.number, each.at * 2, each.kind, each.request) for each in table]
    slower = [each for each in slower if each.at < slower[-1].at / 2]
    # In a burst: between two of them nothing would be under way.
    at = slower[len(slower) // 3].at
    moment: list[float] = []

    def end_it() -> None:
        served.kill(lane)
        moment.append(time.perf_counter() - senders.begun)

    answered = senders.arrive(served.address, slower, [(at, end_it)])
    for each in answered:
        log.record("answer", round=f"kill-{lane}", **each.record())
    log.differing(f"kill-{lane}", right, answered)
    found = report.kill_figures(lane, moment[0], answered, right)
    _say(f"{lane} killed: {found}")
    _until_back(served, lane)
    return found


def _until_back(served: Served, lane: str) -> None:
    end = time.monotonic() + 120
    while served.worker(lane)["state"] != "ready":
        if time.monotonic() > end:
            raise TimeoutError(f"the lane {lane} does not come back")
        time.sleep(0.2)


def _say(text: str) -> None:
    print(text, file=sys.stderr)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--run", default=conditions.FEASIBILITY, help="the run's label")
    add("--max-load", type=float, default=conditions.MOST_LOAD)
    add("--binary", type=Path, default=ROOT / "target" / "release" / "omni-jev")
    add("--checkpoint", type=Path, default=ROOT / "recipe" / "demo" / "checkpoint")
    add("--first", default=WORKER, help="the first worker's flags [%(default)s]")
    add("--second", default=WORKER, help="the second worker's flags [%(default)s]")
    add("--settings", default=HELPER, help="more lines of the second [[worker]] table")
    add("--seconds", type=float, default=60.0, help="of each round [%(default)s]")
    add("--busy", type=float, default=0.9, help="share of one lane's most [%(default)s]")
    add("--senders", type=int, default=1, help="processes that send [%(default)s]")
    add("--free", action="store_true", help="let the workers run on every core, as on a GPU")
    options = parser.parse_args()
    options.settings = options.settings.replace("\\n", "\n")
    return options


if __name__ == "__main__":
    sys.exit(main())

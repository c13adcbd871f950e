"""A checkpoint that loads while another serves: its first request, and what the others wait.

    python benchmarks/laya/late_load.py --run feasibility --stand-in recipe/demo/checkpoint

The default answers one request after the other: alone, while the first request of `--late` waits
for its checkpoint, and after that; once straight at the worker's socket and once through the
frontend, each with a fresh start. `--stand-in` gives a folder as that checkpoint where the hub's
cache has none. A request that the frontend gives up (504) is sent again, as a client would.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.laya.asking import Client, Refused
from benchmarks.laya.inputs import Input, timed
from benchmarks.laya.overhead import both_ways
from benchmarks.laya.results import Line, table
from benchmarks.laya.session import Session, add_servers, guarded, parser
from benchmarks.laya.subjects import Subject
from benchmarks.percentiles import percentile

_PHASES = ("before", "meanwhile", "after")
_WARM = 5
_GIVEN_UP = "status 504"


class Late(threading.Thread):
    """Asks the late checkpoint until it answers."""

    def __init__(self, subject: Subject, asked: Input) -> None:
        super().__init__(daemon=True)
        self._subject = subject
        self._asked = asked
        self.seconds = 0.0
        """From the first request to the answer."""
        self.given_up = 0
        """How many requests the frontend gave up before."""
        self.fault: Exception | None = None

    def run(self) -> None:
        """Ask; a 504 means that the checkpoint is still on its way."""
        begun = time.monotonic()
        try:
            while True:
                client = Client(self._subject)
                try:
                    client.ask(self._asked)
                    break
                except (Refused, TimeoutError) as refused:
                    if isinstance(refused, Refused) and _GIVEN_UP not in str(refused):
                        raise
                    self.given_up += 1
                finally:
                    client.close()
        except (Refused, OSError) as fault:
            self.fault = fault
        self.seconds = time.monotonic() - begun


def measure(run: Session) -> None:
    """Measure both ways, and print the table."""
    options = run.options
    if options.stand_in is not None:
        os.environ["HF_HUB_CACHE"] = str(
            stand_in(run.scratch / "hub", options.late, options.stand_in.resolve())
        )
    default = timed(["one-68"])[0]
    late = replace(default, name=options.late, body={**default.body, "model": options.late})
    starter = run.starter()
    lines = []
    for way in ("direct", "frontend"):
        # A fresh one each time: the checkpoint stays loaded.
        direct, through = both_ways(starter, tcp=False)
        line = _one_way(run, way, direct if way == "direct" else through, default, late)
        for server in through.servers:
            server.stop()
        lines.append(line)
    print(summary(lines))


def _one_way(run: Session, way: str, subject: Subject, default: Input, late: Input) -> Line:
    client = Client(subject)
    for _ in range(_WARM):
        client.ask(default)
    times: dict[str, list[float]] = {phase: [] for phase in _PHASES}
    seconds = run.options.seconds
    asking = Late(subject, late)
    run.bars.say(f"{way}: {seconds:g} s before, then {late.name} loads, then {seconds:g} s after")
    _ask_until(client, default, times["before"], time.monotonic() + seconds)
    asking.start()
    while asking.is_alive():
        times["meanwhile"].append(client.ask(default)[0] * 1000)
    if asking.fault is not None:
        raise Refused(f"{late.name}: {asking.fault}")
    _ask_until(client, default, times["after"], time.monotonic() + seconds)
    again = [client.ask(late)[0] * 1000 for _ in range(_WARM)]
    line = {
        "way": way,
        "late": late.name,
        "first_s": asking.seconds,
        "given_up": asking.given_up,
        "again_ms": again,
        "others_ms": times,
    }
    run.results.record("late", **line, health=subject.health())
    client.close()
    return line


def _ask_until(client: Client, one: Input, times: list[float], end: float) -> None:
    while time.monotonic() < end:
        times.append(client.ask(one)[0] * 1000)


def stand_in(cache: Path, name: str, folder: Path) -> Path:
    """Make a cache of the hub's client that has a folder under a published checkpoint's name."""
    subfolder = {"english": ""}.get(name, name)
    commit = "0" * 40
    repository = cache / "models--convaiinnovations--laya"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(commit)
    shutil.copytree(folder, repository / "snapshots" / commit / subfolder)
    return cache


def summary(lines: Sequence[Line]) -> str:
    """Draw the table: the late checkpoint's requests, and what the others took."""
    head = ["", "first of the late one, s", "given up before", "its next p50 ms"]
    head += [f"others {phase}: p50 / p99 / longest ms (requests)" for phase in _PHASES]
    rows = []
    for line in lines:
        row = [line["way"], f"{line['first_s']:.2f}", str(line["given_up"])]
        row.append(f"{percentile(line['again_ms'], 0.5):.1f}")
        rows.append(row + [_shown(line["others_ms"][phase]) for phase in _PHASES])
    return table(head, rows)


def _shown(times: Sequence[float]) -> str:
    if not times:
        return "none"
    p50, p99 = percentile(times, 0.5), percentile(times, 0.99)
    return f"{p50:.1f} / {p99:.1f} / {max(times):.1f} ({len(times)})"


def arguments() -> argparse.ArgumentParser:
    """Give its flags."""
    made = parser(__doc__)
    made.add_argument(
        "--late", default="multilingual", choices=("english", "multilingual", "typed-decisions")
    )
    made.add_argument("--stand-in", type=Path, help="a folder in Laya's format to load as --late")
    made.add_argument("--seconds", type=float, default=10.0, help="before, and after")
    add_servers(made)
    return made


def main() -> int:
    """Read the command line and measure; the exit code."""
    options = arguments().parse_args()
    return guarded("late_load", "", options, measure)


if __name__ == "__main__":
    sys.exit(main())

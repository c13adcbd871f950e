"""Laya in process, without HTTP: load, warmup, first request, warm latency, memory.

    python benchmarks/laya/bench_inproc.py --device cpu --config C1 --run feasibility

C1 is the CPU, C2 the device. Imports `laya` as it is installed and asks its `Agent`.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.laya import inputs
from benchmarks.laya.processes import MemoryWatch
from benchmarks.laya.session import (
    Session,
    add_inputs,
    chosen_inputs,
    parser,
    session,
)


def measure(run: Session, asked: list[inputs.Input]) -> None:
    """Load laya and ask it."""
    options, results = run.options, run.results
    with MemoryWatch([os.getpid()]) as memory:
        importing, _ = _timed(lambda: __import__("laya.agent"))
        from laya.agent import Agent

        memory.phase = "load"
        loading, agent = _timed(lambda: Agent(str(run.folder), device=options.device))
        results.record("load", import_s=importing, load_s=loading)

        def ask(one: inputs.Input) -> Any:
            # Its answer's numbers are on the CPU: what it needs of the device is done by then.
            return agent.system_one(one.body["state"], one.body["questions"])

        memory.phase = "first"
        first, _ = _timed(lambda: ask(asked[0]))
        results.record("first", input=asked[0].name, ms=first * 1000)
        memory.phase = "warmup"
        warmup, _ = _timed(lambda: [ask(each) for each in asked])
        results.record("warmup", seconds=warmup)
        run.bars.say(
            f"import {importing:.2f} s, load {loading:.2f} s, first {first * 1000:.1f} ms, "
            f"warmup of every input once {warmup:.2f} s"
        )
        memory.phase = "answers"
        for each in inputs.compared() if options.replay is None else asked:
            results.record("answers", input=each.name, answers=ask(each)["answers"])
        memory.phase = "warm"
        # Taken between inputs, so that it takes no time from what is timed.
        memory.paused = True
        for each in asked:
            times = _latencies(run, each, ask)
            results.record("latency", input=each.name, title=each.title, milliseconds=times)
            memory.sample()
    results.record("memory", samples=memory.samples)


def _latencies(run: Session, one: inputs.Input, ask: Callable[[inputs.Input], Any]) -> list[float]:
    options = run.options
    total = options.warmup + options.count
    times = []
    gc.disable()
    try:
        for number in run.bars.over(one.title, range(total), total):
            seconds, _ = _timed(lambda: ask(one))
            if number >= options.warmup:
                times.append(round(seconds * 1000, 4))
    finally:
        gc.enable()
    return times


def _timed(work: Callable[[], Any]) -> tuple[float, Any]:
    begun = time.perf_counter()
    made = work()
    return time.perf_counter() - begun, made


def arguments() -> argparse.ArgumentParser:
    """Give its flags."""
    made = parser(__doc__)
    made.add_argument("--config", choices=("C1", "C2"), help="C1 on the CPU, else C2")
    add_inputs(made)
    made.add_argument("--count", type=int, default=100, help="timed requests of each input")
    made.add_argument("--warmup", type=int, default=10, help="requests of each that do not count")
    return made


def main() -> int:
    """Read the command line and measure; the exit code."""
    options = arguments().parse_args()
    fits = "C1" if options.device == "cpu" else "C2"
    if options.config not in (None, fits):
        raise SystemExit(
            f"error: --config {options.config}: on --device {options.device} it is {fits}"
        )
    with session("bench_inproc", fits, options) as run:
        measure(run, chosen_inputs(options))
    return 0


if __name__ == "__main__":
    sys.exit(main())

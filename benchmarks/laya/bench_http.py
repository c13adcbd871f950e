"""A server over HTTP: time to ready, first request, warm latency, Poisson arrivals, memory.

    python benchmarks/laya/bench_http.py --config C5 --run feasibility

C3 is upstream's server on the checkpoint's folder, or what `--spawn` starts; C4 the same behind the
frontend; C3w and C3o this project's worker by itself, without and with `--options`; C5 the frontend
with the worker that it supervises. With `--url` alone it asks a server that runs.
"""

from __future__ import annotations

import argparse
import random
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.gpu import load
from benchmarks.laya.asking import Client, Refused
from benchmarks.laya.inputs import Input, compared
from benchmarks.laya.processes import MemoryWatch
from benchmarks.laya.results import Results
from benchmarks.laya.session import (
    Session,
    add_inputs,
    add_servers,
    chosen_inputs,
    guarded,
    parser,
)
from benchmarks.laya.subjects import CONFIGS, Subject
from benchmarks.percentiles import percentile

_SEED = 20261130
_PROCESSES = 2
"""Of the generator, for requests that are due."""


def measure(run: Session, asked: Sequence[Input]) -> None:
    """Start, or find, the server and measure it."""
    options = run.options
    starter = run.starter(
        options=shlex.split(options.options), spawn=options.spawn, url=options.url
    )
    if options.url and not options.spawn:
        subject = starter.side(options.url)
    else:
        run.bars.say(f"starting {options.config}")
        subject = starter.config(options.config)
    run.results.record("ready", seconds=subject.ready_s, command=subject.command)
    if subject.ready_s is not None:
        run.bars.say(f"ready after {subject.ready_s:.2f} s")
    with MemoryWatch(subject.roots) as memory:
        client = Client(subject)
        memory.phase = "first"
        first, _ = client.ask(asked[0])
        run.results.record("first", input=asked[0].name, ms=first * 1000)
        run.bars.say(f"first request {first * 1000:.1f} ms")
        memory.phase = "answers"
        others = compared() if options.replay is None else []
        for line in client.answers([*asked, *(one for one in others if one not in asked)]):
            run.results.record("answers", **line)
        memory.phase = "warm"
        memory.paused = True
        medians = [_latency(run, client, one, memory) for one in asked]
        memory.paused = False
        memory.phase = "load"
        _arrivals(run, client, asked, sum(medians) / len(medians))
        client.close()
    _memory(run.results, subject, memory)


def _latency(run: Session, client: Client, one: Input, memory: MemoryWatch) -> float:
    """Time one input alone; the median in seconds."""
    options = run.options
    outcome = client.latency(one, options.warmup, options.count, run.bars.over)
    memory.sample()
    run.results.record(
        "latency",
        input=one.name,
        title=one.title,
        tokens=client.tokens(one),
        problem=outcome.problem(),
        **outcome.record(),
    )
    if not outcome.times:
        raise Refused(f"{one.name}: {outcome.problem()}")
    p50, p99 = outcome.milliseconds(0.5), outcome.milliseconds(0.99)
    run.bars.say(f"{one.title}: p50 {p50:.1f} ms, p99 {p99:.1f} ms, {outcome.problem() or 'ok'}")
    return p50 / 1000


def _arrivals(run: Session, client: Client, asked: Sequence[Input], mean: float) -> None:
    """Ask at random moments, at each rate; `mean` seconds is a request's time alone."""
    options = run.options
    rates = [float(each) for each in options.rates.split(",") if each]
    if not rates:
        rates = [float(share) / mean for share in options.shares.split(",") if share]
    chance = random.Random(_SEED)
    for rate in run.bars.over("arrivals", rates, len(rates)):
        moments = load.poisson(rate, options.seconds, _SEED)
        items = [client.item(chance.choice(asked)) for _ in moments]
        outcome = load.arrivals(
            client.subject.address, items, moments, processes=_PROCESSES, grace=options.grace
        )
        answered = len(outcome.times) / options.seconds
        problem = outcome.problem() if moments else "no request was due"
        run.results.record(
            "arrivals",
            rate=rate,
            seconds=options.seconds,
            answered_per_second=answered,
            problem=problem,
            **outcome.record(),
        )
        told = problem or "ok"
        if outcome.times:
            p50, p99 = (percentile(outcome.times, share) * 1000 for share in (0.5, 0.99))
            told = f"p50 {p50:.1f} ms, p99 {p99:.1f} ms, {told}"
        run.bars.say(f"{rate:.1f} requests/s for {options.seconds:g} s: {told}")


def _memory(results: Results, subject: Subject, memory: MemoryWatch) -> None:
    health = subject.health()
    results.record("health", health=health)
    results.record("memory", samples=memory.samples, worker=health.get("memory"))


def arguments() -> argparse.ArgumentParser:
    """Give its flags."""
    made = parser(__doc__)
    made.add_argument("--config", choices=CONFIGS, help="what to start; with --url only its name")
    made.add_argument("--spawn", help="C3's and C4's server, with {port} for the port, or --url")
    made.add_argument("--url", help="of a running server, or where --spawn's listens")
    made.add_argument("--options", default="--compile --weights fp16", help="what C3o adds")
    add_servers(made)
    add_inputs(made)
    made.add_argument("--count", type=int, default=100, help="timed requests of each input")
    made.add_argument("--warmup", type=int, default=10, help="requests of each that do not count")
    made.add_argument("--rates", default="", help="arrivals a second: N,N (default: by --shares)")
    made.add_argument(
        "--shares", default="0.3,0.6,0.9", help="rates as shares of what one client is answered"
    )
    made.add_argument("--seconds", type=float, default=20.0, help="of each rate")
    made.add_argument("--grace", type=float, default=10.0, help="seconds for the last answers")
    return made


def main() -> int:
    """Read the command line and measure; the exit code."""
    options = arguments().parse_args()
    if options.config is None and not options.url:
        raise SystemExit("error: --config or --url: what is to be measured?")
    if options.spawn and options.config not in ("C3", "C4"):
        raise SystemExit("error: --spawn: it starts the server of --config C3 or C4")
    asked = chosen_inputs(options)
    return guarded("bench_http", options.config or "url", options, lambda run: measure(run, asked))


if __name__ == "__main__":
    sys.exit(main())

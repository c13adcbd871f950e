"""How many threads torch should have on a CPU, with the frontend busy on the same cores.

    .venv/bin/python -m benchmarks.worker.threads [--most 2]

A frontend with its worker for each number of threads, all up, get the same requests in turn, in
short rounds of shuffled order, from 1, 8 and 32 clients. Prints medians over the rounds, and the
ratio to one thread within a round. ``--beside`` adds processes that do nothing but keep a core
busy.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import statistics
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

from benchmarks.worker.against_upstream import (
    FIGURES,
    ROOT,
    Round,
    free_port,
    load,
    running,
    until_answering,
    workload,
)
from benchmarks.worker.raw import Line, Raw, of

CLIENTS = (1, 8, 32)


async def measure(options: argparse.Namespace, logs: Path) -> None:
    """Starts one for each number, measures, prints."""
    raw = Raw(options.raw, "threads")
    bodies = workload(200)
    ports = {number: free_port() for number in range(1, options.most + 1)}
    with ExitStack() as servers:
        for number, port in ports.items():
            settings = {
                "OMNI_JEV_BIND": f"127.0.0.1:{port}",
                "OMNI_JEV_ADMIN_BIND": "off",
                "OMNI_JEV_WORKER_PYTHON": sys.executable,
            }
            command: list[str | Path] = [options.binary.resolve(), "--", "--device", "cpu"]
            command += ["--threads", str(number), *options.flags]
            log = logs / str(number)
            process = servers.enter_context(running(command, log, settings))
            await until_answering(process, port, bodies[0], log)
        for number in range(options.beside):
            busy: list[str | Path] = [sys.executable, "-c", "while True: pass"]
            servers.enter_context(running(busy, logs / f"busy {number}", {}))
        for clients in CLIENTS:
            for _ in range(options.rounds):
                order = random.sample(list(ports), len(ports))
                one = {n: await load(ports[n], bodies, clients, options.seconds) for n in order}
                raw.record("round", clients=clients, threads={n: asdict(r) for n, r in one.items()})
    print(summary(raw.lines))


def summary(lines: Sequence[Line]) -> str:
    """Draws the table of rounds."""
    rows = ["| clients | threads | p50 ms | p99 ms | answers/s | answers/s, of one thread's |"]
    rows.append("| --- | --- | --- | --- | --- | --- |")
    rounds: dict[int, list[dict[int, Round]]] = {}
    for line in of(lines, "round"):
        # Read from a file, numbers that are keys are texts.
        one = {int(number): Round(**done) for number, done in line["threads"].items()}
        rounds.setdefault(line["clients"], []).append(one)
    for clients, each in rounds.items():
        for number in sorted(each[0]):
            shown = [
                f"{statistics.median(value(one[number]) for one in each):.1f}"
                for value in FIGURES.values()
            ]
            ratio = statistics.median(one[number].rate / one[1].rate for one in each)
            rows.append(f"| {clients} | {number} | {' | '.join(shown)} | {ratio:.2f} |")
    return "\n".join(rows)


def main() -> None:
    """Reads the command line and measures."""
    parser = argparse.ArgumentParser(description="Measure how many threads serve best.")
    parser.add_argument("--binary", type=Path, default=ROOT / "target/release/omni-jev")
    parser.add_argument("--most", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--beside", type=int, default=0, help="busy processes on the same cores")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=6.0, help="of each in a round")
    parser.add_argument("--raw", type=Path, help="append each round's times to this file")
    parser.add_argument("flags", nargs="*", help="the worker's, after --")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="omni-jev-bench-") as logs:
        asyncio.run(measure(options, Path(logs)))


if __name__ == "__main__":
    main()

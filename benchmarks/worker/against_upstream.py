"""omni-jev against upstream's own server, in the same run, on the demo checkpoint.

    .venv/bin/python benchmarks/worker/against_upstream.py [--binary target/release/omni-jev]

Both servers are up all the time and get the same requests in turn, in short rounds of shuffled
order, from 1, 8 and 32 clients that each ask one question after the other. Prints a table of
medians over the rounds; ratios are taken within a round. Exits with 1 if any answer was wrong:
anything but 200, or probabilities other than upstream's by more than 0.001.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.percentiles import percentile_above
from benchmarks.worker.raw import Line, Raw, of

ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / "recipe" / "demo"
ONE_THREAD = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
PATIENCE = 120.0


@dataclass
class Round:
    """What one server did in one round."""

    seconds: float = 0.0
    times: list[float] = field(default_factory=list)
    wrong: int = 0

    @property
    def rate(self) -> float:
        """Answers a second."""
        return len(self.times) / self.seconds

    def percentile(self, share: float) -> float:
        """Milliseconds within which this share of requests was answered."""
        return percentile_above(self.times, share) * 1000


FIGURES: dict[str, Callable[[Round], float]] = {
    "p50 ms": lambda side: side.percentile(0.5),
    "p99 ms": lambda side: side.percentile(0.99),
    "answers/s": lambda side: side.rate,
}


def workload(count: int) -> list[bytes]:
    """Requests of one question each, from the demo's held-out items, always the same."""
    lines = (DEMO / "heldout.jsonl").read_text(encoding="utf-8").splitlines()
    items = [json.loads(line) for line in random.Random(1).sample(lines, count)]
    return [
        json.dumps({"state": item["state"], "questions": {"q": item["question"]}}).encode()
        for item in items
    ]


async def ask(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, body: bytes
) -> tuple[int, bytes]:
    """One request on a kept connection: status and body."""
    head = b"POST /v1/systemone HTTP/1.1\r\nhost: h\r\ncontent-type: application/json\r\n"
    writer.write(head + b"content-length: %d\r\n\r\n" % len(body) + body)
    text = await reader.readuntil(b"\r\n\r\n")
    length = next(
        int(line.split(b":")[1])
        for line in text.split(b"\r\n")
        if line.lower().startswith(b"content-length:")
    )
    return int(text[9:12]), await reader.readexactly(length)


async def load(port: int, bodies: list[bytes], clients: int, seconds: float) -> Round:
    """Keeps `clients` busy for so long, each with the next request as soon as it has an answer."""
    done = Round()
    end = time.perf_counter() + seconds

    async def client(number: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        turn = number * 7
        while time.perf_counter() < end:
            begun = time.perf_counter()
            status, _ = await asyncio.wait_for(
                ask(reader, writer, bodies[turn % len(bodies)]), PATIENCE
            )
            done.times.append(time.perf_counter() - begun)
            done.wrong += status != 200
            turn += 1
        writer.close()

    begun = time.perf_counter()
    await asyncio.gather(*(client(number) for number in range(clients)))
    done.seconds = time.perf_counter() - begun
    return done


def numbers(answer: dict[str, Any]) -> list[float]:
    """The probabilities of the one answer."""
    given = answer["answers"]["q"]
    return [given["noul"]] if given["type"] == "noul" else list(given["probabilities"].values())


async def differing(ports: dict[str, int], bodies: list[bytes]) -> int:
    """How many answers are not those of upstream."""
    answers: dict[str, list[list[float]]] = {}
    for name, port in ports.items():
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        replies = [await asyncio.wait_for(ask(reader, writer, body), PATIENCE) for body in bodies]
        answers[name] = [numbers(json.loads(body)) for _, body in replies]
        writer.close()
    pairs = zip(answers["upstream"], answers["omni-jev"], strict=True)
    return sum(
        len(one) != len(other) or any(abs(a - b) > 1e-3 for a, b in zip(one, other, strict=True))
        for one, other in pairs
    )


@contextmanager
def running(
    command: list[str | Path], log: Path, env: dict[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """A server that ends with the block; its output goes to a file."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, **ONE_THREAD, **env},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            yield process
        finally:
            process.terminate()
            process.wait()


def free_port() -> int:
    """A port that nobody listens on now: uvicorn does not say which one it took."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


async def until_answering(
    process: subprocess.Popen[bytes], port: int, body: bytes, log: Path
) -> None:
    """Waits for the first 200."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end and process.poll() is None:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            status, _ = await ask(reader, writer, body)
            writer.close()
            if status == 200:
                return
        except (OSError, asyncio.IncompleteReadError):
            pass
        await asyncio.sleep(0.2)
    raise SystemExit(f"no answer: {log.read_text(errors='replace')[-2000:]}")


async def measure(options: argparse.Namespace, logs: Path) -> int:
    """Starts both, measures, prints; the exit code."""
    raw = Raw(options.raw, "against_upstream")
    bodies = workload(200)
    ports = {"upstream": free_port(), "omni-jev": free_port()}
    upstream: list[str | Path] = [sys.executable, ROOT / "benchmarks/worker/upstream.py"]
    upstream += [DEMO / "checkpoint", str(ports["upstream"])]
    settings = {
        "OMNI_JEV_BIND": f"127.0.0.1:{ports['omni-jev']}",
        "OMNI_JEV_ADMIN_BIND": "off",
        "OMNI_JEV_WORKER_PYTHON": sys.executable,
    }
    ours: list[str | Path] = [options.binary.resolve(), "--", "--device", "cpu"]
    ours += ["--threads", "1", *options.flags]
    with ExitStack() as servers:
        started = {
            "upstream": servers.enter_context(running(upstream, logs / "upstream", {})),
            "omni-jev": servers.enter_context(running(ours, logs / "omni-jev", settings)),
        }
        for name, process in started.items():
            await until_answering(process, ports[name], bodies[0], logs / name)
        wrong = await differing(ports, bodies)
        rounds: dict[int, list[dict[str, Round]]] = {}
        for clients in options.clients:
            rounds[clients] = []
            for _ in range(options.rounds):
                order = random.sample(list(ports), len(ports))
                one = {
                    name: await load(ports[name], bodies, clients, options.seconds)
                    for name in order
                }
                rounds[clients].append(one)
                sides = {name: asdict(side) for name, side in one.items()}
                raw.record("round", clients=clients, sides=sides)
    wrong += sum(side.wrong for each in rounds.values() for one in each for side in one.values())
    raw.record("end", wrong=wrong)
    print(report(rounds, wrong))
    return 1 if wrong else 0


def summary(lines: Sequence[Line]) -> str:
    """Draw the table of recorded rounds."""
    rounds: dict[int, list[dict[str, Round]]] = {}
    for line in of(lines, "round"):
        sides = {name: Round(**side) for name, side in line["sides"].items()}
        rounds.setdefault(line["clients"], []).append(sides)
    return report(rounds, sum(line["wrong"] for line in of(lines, "end")))


def report(rounds: dict[int, list[dict[str, Round]]], wrong: int) -> str:
    """Draws the table."""
    rows = ["| clients | | upstream | omni-jev | ratio, median and quartiles |"]
    rows.append("| --- | --- | --- | --- | --- |")
    for clients, each in rounds.items():
        for title, value in FIGURES.items():
            theirs = [value(one["upstream"]) for one in each]
            ours = [value(one["omni-jev"]) for one in each]
            ratios = [mine / other for mine, other in zip(ours, theirs, strict=True)]
            low, middle, high = statistics.quantiles(ratios, n=4)
            rows.append(
                f"| {clients} | {title} | {statistics.median(theirs):.1f} "
                f"| {statistics.median(ours):.1f} | {middle:.2f} ({low:.2f} to {high:.2f}) |"
            )
    return "\n".join([*rows, f"\nwrong answers: {wrong}"])


def main() -> int:
    """Reads the command line and measures; the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--binary", type=Path, default=ROOT / "target/release/omni-jev")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each server in a round")
    parser.add_argument("--raw", type=Path, help="append each round's times to this file")
    parser.add_argument("flags", nargs="*", help="the worker's, after --")
    options = parser.parse_args()
    if importlib.util.find_spec("fastapi") is None:
        parser.error("upstream's server needs fastapi: .venv/bin/pip install fastapi")
    with tempfile.TemporaryDirectory(prefix="omni-jev-bench-") as logs:
        return asyncio.run(measure(options, Path(logs)))


if __name__ == "__main__":
    sys.exit(main())

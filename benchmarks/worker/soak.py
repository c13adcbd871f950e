"""An hour of decisions of every kind and length, each answer checked, with an eye on the memory.

    cargo xtask soak worker [--minutes 60] [--clients 16] [--seed N] [--samples FILE]

Starts omni-jev with its worker on the demo checkpoint, asks each of a set of made-up requests once,
alone, and then has the clients ask them at random for so long. Every answer must be, within 0.001,
what the same request got alone. `/health` is asked for 50 times a second meanwhile, and the memory
is released all the time. Prints a table; exits with 1 if any answer was wrong or none came, or if
the footprint grew by more than a tenth after its first five minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.worker.soak_account import Account, Sample
from tests.harness.generated import requests
from tests.harness.omni_jev import ROOT, OmniJev

TOLERANCE = 1e-3
PATIENCE = 60.0
"""Seconds: the frontend's own deadline for an answer."""
HEALTH_HZ = 50
LONGEST_WORDS = 420
"""Some more than the demo's window of 512 tokens holds."""


class Connection:
    """A kept HTTP/1.1 connection to the frontend."""

    def __init__(self, address: str) -> None:
        self._host, _, port = address.rpartition(":")
        self._port = int(port)
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def exchange(self, line: str, body: bytes = b"") -> tuple[int, bytes]:
        """Send a request such as `GET /health`; its status and body."""
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._host, self._port)
        reader, writer = self._streams
        head = f"{line} HTTP/1.1\r\nhost: soak\r\ncontent-type: application/json\r\n"
        writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        answer = (await reader.readuntil(b"\r\n\r\n")).lower().split(b"\r\n")
        length = next(int(h.split(b":")[1]) for h in answer if h.startswith(b"content-length:"))
        return int(answer[0].split()[1]), await reader.readexactly(length)

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


class Asked:
    """A request, and what it was answered when it was alone."""

    def __init__(self, request: dict[str, Any]) -> None:
        self._request = request
        self.right: dict[str, Any] = {}

    def body(self, mark: str) -> bytes:
        """The request with marked question ids, so that no other one's answer can pass for its."""
        questions = {name + mark: question for name, question in self._request["questions"].items()}
        return json.dumps({"state": self._request["state"], "questions": questions}).encode()

    def fault(self, answer: bytes, mark: str) -> str | None:
        """What is wrong with an answer, if anything is."""
        answers = json.loads(answer)["answers"]
        if list(answers) != [name + mark for name in self._request["questions"]]:
            return "an answer to other questions"
        given = {name.removesuffix(mark): value for name, value in answers.items()}
        return None if same(given, self.right) else "a wrong answer"


def same(given: Any, right: Any) -> bool:
    """Compare two answers: numbers within the tolerance, everything else exactly."""
    if isinstance(right, dict):
        return list(given) == list(right) and all(same(given[key], right[key]) for key in right)
    if isinstance(right, float) and isinstance(given, int | float):
        return abs(given - right) <= TOLERANCE
    return bool(given == right)


def workload(count: int, seed: int) -> Iterator[Asked]:
    """Make up requests of all types, with states of all lengths up to the window and over it."""
    chance = random.Random(seed)
    words = (ROOT / "recipe/demo/heldout.jsonl").read_text(encoding="utf-8").split()
    for number, request in enumerate(requests(count, seed)):
        # Every length comes; short ones more often, or there would be few answers to check.
        length = round(LONGEST_WORDS * chance.random() ** 2)
        request["state"] = " ".join(chance.choices(words, k=length))
        if number % 50 == 0:
            # What does not fit one row, and so is scored in groups.
            options = {f"option {word} {index}": None for index, word in enumerate(words[:120])}
            request["questions"]["wide"] = {
                "type": "choice",
                "instructions": "Which of these?",
                "criteria": options,
            }
        yield Asked(request)


async def learn(address: str, asked: list[Asked]) -> None:
    """Ask each request alone, and keep what is right from then on."""
    connection = Connection(address)
    for one in asked:
        status, body = await connection.exchange("POST /v1/systemone", one.body(""))
        if status != 200:
            raise SystemExit(f"error: a request alone got {status}: {body[:500]!r}")
        one.right = json.loads(body)["answers"]
    connection.close()


async def client(number: int, address: str, asked: list[Asked], seed: int, run: Run) -> None:
    """Ask one request after the other until the time is over."""
    chance = random.Random(seed + number)
    connection = Connection(address)
    turn = 0
    while run.seconds < run.length:
        turn += 1
        one, mark = chance.choice(asked), f"·{number}·{turn}"
        begun = time.perf_counter()
        try:
            work = connection.exchange("POST /v1/systemone", one.body(mark))
            status, body = await asyncio.wait_for(work, PATIENCE + 5)
            fault = one.fault(body, mark) if status == 200 else f"status {status}"
        except (OSError, EOFError, TimeoutError, ValueError, KeyError) as error:
            fault = f"no answer ({type(error).__name__})"
            connection.close()
        if fault is None:
            run.account.answer_ms.append(1000 * (time.perf_counter() - begun))
        else:
            run.account.faults[fault] += 1
    connection.close()


async def watch(address: str, run: Run) -> None:
    """Ask for `/health` all the time, and sample it each second."""
    connection = Connection(address)
    instance, tick = None, 0
    while run.seconds < run.length:
        # To a fixed beat; a late answer leaves out the beats that it missed.
        tick = max(tick + 1, int(run.seconds * HEALTH_HZ))
        await asyncio.sleep(tick / HEALTH_HZ - run.seconds)
        begun = time.perf_counter()
        try:
            status, body = await asyncio.wait_for(connection.exchange("GET /health"), PATIENCE)
            health = json.loads(body)
            run.account.health_ms.append(1000 * (time.perf_counter() - begun))
            if status != 200 or not health["ready"]:
                raise ValueError(status)
        except (OSError, EOFError, TimeoutError, ValueError, KeyError) as error:
            run.account.faults[f"/health failed ({type(error).__name__})"] += 1
            connection.close()
            continue
        if instance not in (None, health["instance"]):
            run.account.faults["the worker was restarted"] += 1
        instance = health["instance"]
        if len(run.account.samples) <= run.seconds:
            run.account.samples.append(sample(run.seconds, health))
    connection.close()


def sample(second: float, health: dict[str, Any]) -> Sample:
    """What is kept of a second's `/health`."""
    memory, queue = health["memory"], health["queue"]
    return Sample(
        second=round(second, 2),
        footprint_bytes=memory["footprint_bytes"],
        releases=memory["releases"],
        lengths_seen=memory["lengths_seen"],
        depth=queue["depth"],
        batches=queue["batches"],
        rows=queue["rows"],
    )


class Run:
    """The time of the run, and its account."""

    def __init__(self, minutes: float) -> None:
        self._begun = time.monotonic()
        self.length = minutes * 60
        self.account = Account(minutes)

    @property
    def seconds(self) -> float:
        """Since the start."""
        return time.monotonic() - self._begun


async def soak(address: str, options: argparse.Namespace, say: Callable[[str], None]) -> Account:
    """Learn what is right, then ask for so long; the account."""
    asked = list(workload(options.requests, options.seed))
    await learn(address, asked)
    say(f"knows {len(asked)} answers; asking for {options.minutes:g} minutes")
    run = Run(options.minutes)
    clients = [
        client(number, address, asked, options.seed, run) for number in range(options.clients)
    ]
    await asyncio.gather(watch(address, run), *clients)
    return run.account


def say(message: str) -> None:
    """Tell the person at the terminal."""
    print(f"==> {message}", file=sys.stderr)


def stop(*_: object) -> None:
    """Let a SIGTERM end the run as Ctrl-C does: with every process ended."""
    raise KeyboardInterrupt


def main() -> int:
    """Read the command line, run, report; the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--binary", type=Path, default=ROOT / "target/release/omni-jev")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    parser.add_argument("--requests", type=int, default=400, help="different ones")
    parser.add_argument("--samples", type=Path, help="where to write what each second held, JSONL")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, stop)
    # So low that only the cost of a release holds it back: it waits for 32 MiB of growth.
    flags = ("--model", "demo", "--device", "cpu", "--release-memory", "1MiB")
    # A line for each request would be all of the log, which is kept.
    quiet = {"LOG": "info,omni_jev::access=off"}
    with OmniJev(quiet, worker_flags=flags, program=options.binary.resolve()) as subject:
        subject.wait_until_ready()
        say(f"{options.clients} clients, seed {options.seed}")
        account = asyncio.run(soak(subject.address, options, say))
        complaints = [e.text for e in subject.process.events if e["level"] in ("ERROR", "error")]
        account.faults.update({f"logged: {text[:200]}": 1 for text in complaints})
    if options.samples is not None:
        lines = (json.dumps(record) + "\n" for record in account.records())
        options.samples.write_text("".join(lines), encoding="utf-8")
    print(f"{options.minutes:g} minutes, {options.clients} clients, seed {options.seed}\n")
    print(account.table())
    for missed in account.misses():
        say(f"missed: {missed}")
    return 1 if account.misses() else 0


if __name__ == "__main__":
    sys.exit(main())

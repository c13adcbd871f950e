"""What the worker spends on a request beside the model, on Linux.

    .venv/bin/python -m benchmarks.worker.request_path [--peer OTHER_CHECKOUT] [--pass-ms 1.3]

The worker runs as it is served, over a Unix socket, but the model's pass costs nothing: `infer`
returns fixed scores, after a wait of ``--pass-ms`` outside the interpreter's lock. Batches are
those of a CUDA device. So what is left is HTTP, parsing, checks, tokenizing, the queue, decoding
and rendering. Answers are the same whatever is asked, and mean nothing.

With ``--peer`` another checkout's worker is up as well, and both get the same requests in turn, in
short rounds of shuffled order; ratios are taken within a round. CPU time is what the kernel
counts for the threads of the process (``/proc``); times and answers/s are a client's on the same
machine, in one thread of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import selectors
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from benchmarks.worker.against_upstream import ONE_THREAD, ROOT, free_port
from benchmarks.worker.request_path_worker import THREADS

CLIENTS = (1, 64)
_SERVED = Path(__file__).with_name("request_path_worker.py")
# Of the demo's domain: one token each, or two.
_WORDS = """please refund the duplicate charge on my card because order arrived damaged and support
never answered after two weeks while subscription renewed again without any notice today"""


def requests(count: int, words: int) -> list[bytes]:
    """Requests of one noul, choice or score each: the questions repeat, the states do not."""
    chance = random.Random(1)
    known = _WORDS.split()
    questions = [
        {"type": "noul", "instructions": "Does the customer ask for a refund?"},
        {
            "type": "choice",
            "instructions": "What does the customer want?",
            "criteria": ["a refund", "a new password", "a delivery date"],
        },
        {
            "type": "score",
            "instructions": "How frustrated is the customer?",
            "criteria": ["calm", "annoyed", "furious"],
        },
    ]
    made = []
    for number in range(count):
        state = " ".join(chance.choices(known, k=words)) + f" {number}"
        asked = {"state": state, "questions": {"q": questions[number % len(questions)]}}
        body = json.dumps(asked).encode()
        head = (
            b"POST /v1/systemone HTTP/1.1\r\nhost: worker\r\ncontent-type: application/json\r\n"
            b"accept: */*\r\nx-request-id: 0123456789abcdef0123456789abcdef\r\n"
            b"content-length: %d\r\n\r\n" % len(body)
        )
        made.append(head + body)
    return made


class Worker:
    """A worker of one checkout, and what its threads have used."""

    def __init__(self, name: str, checkout: Path, options: argparse.Namespace, log: Path) -> None:
        """Start it; ``until_ready`` waits."""
        self.name = name
        self.socket = str(log.with_suffix(".sock"))
        address = ["--port", str(free_port())] if options.tcp else ["--uds", self.socket]
        self.port = int(address[1]) if options.tcp else None
        command: list[str | Path] = [sys.executable, _SERVED]
        command += [str(options.pass_ms), *address, "--max-queue", "4096", "--device", "cpu"]
        command += ["--forward", "laya", "--log-level", "warning", *options.flags]
        path = os.pathsep.join(
            [str(checkout / "worker-py" / "src"), os.environ.get("PYTHONPATH", "")]
        )
        self._log = log
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                command,
                cwd=checkout,
                env={**os.environ, **ONE_THREAD, "PYTHONPATH": path},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                text=True,
            )

    @property
    def _pipes(self) -> tuple[IO[str], IO[str]]:
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("the worker was started without pipes")
        return self._process.stdin, self._process.stdout

    def connect(self) -> socket.socket:
        """Open a connection."""
        if self.port is not None:
            opened = socket.create_connection(("127.0.0.1", self.port))
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return opened
        opened = socket.socket(socket.AF_UNIX)
        opened.connect(self.socket)
        return opened

    def until_ready(self, request: bytes) -> None:
        """Wait until it answers."""
        end = time.monotonic() + 120
        while time.monotonic() < end and self._process.poll() is None:
            try:
                with self.connect() as asked:
                    asked.sendall(request)
                    if asked.recv(65536).startswith(b"HTTP/1.1 200"):
                        return
            except OSError:
                time.sleep(0.2)
        raise SystemExit(f"no answer: {self._log.read_text(errors='replace')[-2000:]}")

    def used(self) -> Counter[str]:
        """Read the microseconds that its threads have run so far, by name."""
        to, back = self._pipes
        to.write(f"{THREADS}\n")
        to.flush()
        names = {int(tid): name for tid, name in json.loads(back.readline()).items()}
        used: Counter[str] = Counter()
        for task in Path(f"/proc/{self._process.pid}/task").iterdir():
            nanoseconds = int((task / "schedstat").read_text().split()[0])
            used[names.get(int(task.name), "others")] += nanoseconds // 1000
        return used

    def stop(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.wait()
        for pipe in self._pipes:
            pipe.close()


@dataclass
class Round:
    """What one worker did in one round."""

    seconds: float = 0.0
    times: list[float] = field(default_factory=list)
    cpu: Counter[str] = field(default_factory=Counter)

    @property
    def figures(self) -> dict[str, float]:
        """The figures that are printed, by their titles."""
        count = len(self.times)
        shown = {"p50 ms": statistics.median(self.times) * 1000, "answers/s": count / self.seconds}
        shown["CPU µs/request"] = self.cpu.total() / count
        for name, used in self.cpu.most_common():
            shown[f"of it {name}"] = used / count
        return shown


def load(worker: Worker, bodies: list[bytes], clients: int, seconds: float) -> Round:
    """Keep so many clients busy for so long, each with its next request at the answer."""
    done = Round()
    turn = 0
    with ExitStack() as opened, selectors.DefaultSelector() as ready:
        begun: dict[socket.socket, float] = {}
        for _ in range(clients):
            client = opened.enter_context(worker.connect())
            ready.register(client, selectors.EVENT_READ, [b""])
            begun[client] = 0.0
        before = worker.used()
        start = time.perf_counter()
        for client in begun:
            begun[client] = time.perf_counter()
            client.sendall(bodies[turn % len(bodies)])
            turn += 1
        while (now := time.perf_counter()) < start + seconds:
            for key, _ in ready.select(1.0):
                client = key.fileobj  # type: ignore[assignment]
                key.data[0] += client.recv(65536)
                if not whole(key.data[0]):
                    continue
                key.data[0] = b""
                now = time.perf_counter()
                done.times.append(now - begun[client])
                begun[client] = now
                client.sendall(bodies[turn % len(bodies)])
                turn += 1
        done.seconds = now - start
        done.cpu = worker.used() - before
    return done


def whole(answer: bytes) -> bool:
    """Say whether an answer has come to its end; any but a 200 ends the measurement."""
    head, found, body = answer.partition(b"\r\n\r\n")
    if not found:
        return False
    if not head.startswith(b"HTTP/1.1 200"):
        raise SystemExit(f"not answered: {answer[:500]!r}")
    _, _, rest = head.lower().partition(b"content-length: ")
    return len(body) >= int(rest.split(b"\r\n")[0])


def measure(options: argparse.Namespace, folder: Path) -> None:
    """Start, measure and print."""
    bodies = requests(3000, options.words)
    checkouts = {"here": ROOT, **({"peer": options.peer.resolve()} if options.peer else {})}
    with ExitStack() as stack:
        workers = []
        for name, checkout in checkouts.items():
            workers.append(Worker(name, checkout, options, folder / name))
            stack.callback(workers[-1].stop)
        for worker in workers:
            worker.until_ready(bodies[0])
            load(worker, bodies, 16, options.seconds)
        for clients in options.clients:
            rounds: list[dict[str, Round]] = []
            for _ in range(options.rounds):
                order = random.sample(workers, len(workers))
                rounds.append({w.name: load(w, bodies, clients, options.seconds) for w in order})
            report(clients, rounds, list(checkouts))


def report(clients: int, rounds: list[dict[str, Round]], names: list[str]) -> None:
    """Print medians over the rounds, and ratios within them."""
    figures = [{name: done.figures for name, done in each.items()} for each in rounds]
    titles = list(
        dict.fromkeys(title for each in figures for one in each.values() for title in one)
    )
    ratio = " here/peer |" if len(names) > 1 else ""
    print(f"\n| {clients} clients | {' | '.join(names)} |{ratio}")
    print(f"| --- |{' ---: |' * (len(names) + bool(ratio))}")
    for title in titles:
        cells = []
        for name in names:
            middle = statistics.median(each[name].get(title, 0.0) for each in figures)
            cells.append(f"{middle:.2f}" if title.endswith("ms") else f"{middle:.0f}")
        if ratio and all(each["peer"].get(title) for each in figures):
            within = [each["here"].get(title, 0.0) / each["peer"][title] for each in figures]
            cells.append(f"{statistics.median(within):.2f}")
        elif ratio:
            cells.append("")
        print(f"| {title} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    """Read the command line and measure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--peer", type=Path, help="another checkout, measured in the same rounds")
    parser.add_argument("--clients", type=int, nargs="+", default=CLIENTS)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each worker in a round")
    parser.add_argument("--pass-ms", type=float, default=0.0, help="what a pass waits")
    parser.add_argument("--words", type=int, default=80, help="of a state")
    parser.add_argument("--tcp", action="store_true", help="instead of a Unix socket")
    parser.add_argument("flags", nargs="*", help="the worker's, after --")
    with tempfile.TemporaryDirectory(prefix="omni-jev-bench-") as folder:
        measure(parser.parse_args(), Path(folder))


if __name__ == "__main__":
    main()

"""Compiling in the background: answers all the while, the same, and from compiled code then."""

import json
import os
import signal
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from running_worker import LONG, Reply, RunningWorker

ASKED = {
    "state": "please refund the duplicate charge",
    "questions": {"refund": {"type": "noul", "instructions": "Is it about a refund?"}},
}
FLAGS = ["--compile", "--compile-in-background"]


@pytest.fixture(scope="module")
def flags(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Give the flags, with one cache for all: the compiler takes its time."""
    cache = tmp_path_factory.mktemp("cache")
    return ["--model", str(tiny), "--compile-cache", str(cache), *FLAGS]


class Clients:
    """Ask all the time, on connections that are kept as long as the worker lets them be."""

    def __init__(self, worker: RunningWorker) -> None:
        self._worker = worker
        self._over = threading.Event()
        self.answers: list[float] = []
        self.wrong: list[str] = []
        self._threads = [threading.Thread(target=self._ask) for _ in range(2)]
        for thread in self._threads:
            thread.start()

    def _ask(self) -> None:
        body = json.dumps(ASKED)
        connection = self._worker.connect()
        while not self._over.is_set():
            try:
                # It opens itself anew where the worker said that it would close it.
                connection.request("POST", "/v1/systemone", body)
                reply = Reply(connection.getresponse())
            except Exception as fault:
                self.wrong.append(repr(fault))
                break
            if reply.status == 200:
                self.answers.append(reply.json()["answers"]["refund"]["noul"])
            else:
                self.wrong.append(f"{reply.status} {reply.body!r}")
        connection.close()

    def end(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(LONG)


def successor_of(worker: RunningWorker) -> Any:
    """Give the number of the worker's successor, once it is known."""
    return next((line["child"] for line in worker.lines if line.get("child")), None)


def health_when(worker: RunningWorker, seen: Any) -> Any:
    """Read `/health` until it is as wanted."""
    end = time.monotonic() + LONG
    while time.monotonic() < end:
        told = worker.ask("GET", "/health").json()
        if seen(told):
            return told
        time.sleep(0.05)
    raise AssertionError(f"it stays as it is: {told}")


def test_it_serves_uncompiled_at_once_and_compiled_when_that_is_ready_without_a_wrong_answer(
    flags: list[str],
) -> None:
    with RunningWorker(flags, OMNI_JEV_TUNE_ANYWHERE="1") as worker:
        first = worker.ask("GET", "/health").json()
        assert first["status"] == "ready"
        assert first["compile"]["enabled"]
        assert not first["compile"]["active"]
        assert first["compile"]["in_background"] == "preparing"
        clients = Clients(worker)
        compiled = health_when(worker, lambda told: told["compile"]["active"])
        before = len(clients.answers)
        end = time.monotonic() + LONG
        while len(clients.answers) < before + 50 and time.monotonic() < end:
            time.sleep(0.01)
        clients.end()
        assert not clients.wrong
        assert len(clients.answers) >= before + 50
        assert max(clients.answers) - min(clients.answers) <= 1e-3
        assert compiled["status"] == "ready"
        assert compiled["compile"]["in_background"] is None
        assert compiled["instance"] == first["instance"]
        assert compiled["parity"]["passed"]
        other = successor_of(worker)
        worker.process.terminate()
        assert worker.wait_for_end() == 0
        assert not is_alive(other)


def test_a_successor_that_dies_after_it_took_over_takes_the_worker_with_it(
    flags: list[str],
) -> None:
    with RunningWorker(flags, OMNI_JEV_TUNE_ANYWHERE="1") as worker:
        health_when(worker, lambda told: told["compile"]["active"])
        other = successor_of(worker)
        os.kill(other, signal.SIGKILL)
        assert worker.wait_for_end() == 1
        assert any("process ended" in line["message"] for line in worker.lines)


def test_a_successor_that_dies_is_missed_while_a_client_keeps_its_old_connection(
    flags: list[str],
) -> None:
    with RunningWorker(flags, OMNI_JEV_TUNE_ANYWHERE="1") as worker:
        health_when(worker, lambda told: told["compile"]["in_background"] == "preparing")
        with socket.create_connection(("127.0.0.1", int(worker.ready["port"]))) as half:
            half.sendall(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n")
            assert half.recv(65536)
            # Begun and not ended: no keep-alive closes it.
            half.sendall(b"GET /health HTTP/1.1\r\n")
            health_when(worker, lambda told: told["compile"]["active"])
            os.kill(successor_of(worker), signal.SIGKILL)
            assert worker.wait_for_end() == 1


def test_where_nothing_can_be_compiled_it_serves_on_and_says_why(flags: list[str]) -> None:
    with RunningWorker(flags, OMNI_JEV_TUNE_ANYWHERE="1", TORCHDYNAMO_DISABLE="1") as worker:
        told = health_when(worker, lambda told: told["compile"]["in_background"] == "failed")
        assert told["status"] == "degraded"
        assert any("switched off" in reason for reason in told["tuning"]["reasons"])
        assert worker.decide(ASKED).status == 200
        worker.process.terminate()
        assert worker.wait_for_end() == 0


def test_a_worker_that_is_killed_leaves_no_successor(flags: list[str]) -> None:
    with RunningWorker(flags, OMNI_JEV_TUNE_ANYWHERE="1") as worker:
        end = time.monotonic() + LONG
        while successor_of(worker) is None and time.monotonic() < end:
            time.sleep(0.01)
        other = successor_of(worker)
        worker.process.kill()
        while is_alive(other) and time.monotonic() < end:
            time.sleep(0.01)
        assert not is_alive(other)


def is_alive(pid: int) -> bool:
    """Say whether a process runs; one that nobody has waited for yet does not."""
    try:
        os.kill(pid, 0)
        return not Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].startswith(" Z")
    except (ProcessLookupError, FileNotFoundError):
        return False


@pytest.fixture(autouse=True)
def only_where_proc_is() -> None:
    if not Path("/proc/self/stat").exists():
        pytest.skip("what became of a process is read from /proc here")

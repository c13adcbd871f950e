"""SIGTERM that also reaches the worker, or only the worker: what is in flight is answered."""

import os
import signal
import socket
import threading
import time
from pathlib import Path

from tests.harness.client import Answer, ask
from tests.harness.fakes import FakeWorker
from tests.harness.logged_process import kill
from tests.harness.omni_jev import OmniJev

# A worker whose socket is closed counts as hung after this, unless it said why it is.
SOON = {"WORKER_HANG_TIMEOUT": "1s", "ADMIN_BIND": "127.0.0.1:0"}
# How long its request takes: far longer than that.
SECONDS = "4"


class InFlight:
    """One decision, asked in the background."""

    def __init__(self, running: OmniJev) -> None:
        self.running = running
        self.answer: Answer | None = None
        self._thread = threading.Thread(target=self._ask)
        self._thread.start()

    def _ask(self) -> None:
        self.answer = self.running.decide({"state": "the one in flight"})

    def wait(self) -> Answer:
        self._thread.join(60)
        assert self.answer is not None, "it never ended"
        return self.answer


def admin_of(running: OmniJev) -> str:
    event = running.process.wait_for("admin", lambda event: event["listener"] == "admin", 30)
    return str(event["address"])


def readiness(admin: str) -> int | None:
    """The status of `/readyz`; none once the frontend is gone."""
    try:
        return ask(admin, "GET", "/readyz", timeout=5).status
    except OSError:
        return None


def wait_until_not_ready(admin: str, seconds: float = 5) -> None:
    deadline = time.monotonic() + seconds
    while readiness(admin) == 200:
        assert time.monotonic() < deadline, "still ready"
        time.sleep(0.01)


def with_one_in_flight(running: OmniJev) -> InFlight:
    running.wait_until_ready()
    asked = InFlight(running)
    # Nothing shows from outside when the worker has it.
    time.sleep(0.7)
    return asked


def test_a_sigterm_that_reaches_the_worker_too_lets_what_is_in_flight_be_answered(
    tmp_path: Path,
) -> None:
    with FakeWorker(tmp_path, "drain", SECONDS, **SOON) as running:
        admin = admin_of(running)
        asked = with_one_in_flight(running)
        worker = running.worker().pid
        # As systemd does with `KillMode=control-group`.
        running.process.send(signal.SIGTERM)
        os.kill(worker, signal.SIGTERM)
        wait_until_not_ready(admin)
        assert asked.wait().status == 200
        assert running.process.wait_for_exit(20) == 0
        assert running.starts() == 1
        assert "ending the worker" not in running.process.log
        assert "failed" not in running.process.log


def test_a_worker_stopped_before_the_frontend_lets_what_is_in_flight_be_answered(
    tmp_path: Path,
) -> None:
    with FakeWorker(tmp_path, "drain", SECONDS, **SOON) as running:
        asked = with_one_in_flight(running)
        os.kill(running.worker().pid, signal.SIGTERM)
        running.process.wait_for("draining", lambda event: event["phase"] == "draining", 20)
        running.process.send(signal.SIGTERM)
        assert asked.wait().status == 200
        assert running.process.wait_for_exit(20) == 0
        assert running.starts() == 1


def test_a_worker_that_ends_while_the_frontend_stops_is_no_failure_and_is_not_restarted(
    tmp_path: Path,
) -> None:
    with FakeWorker(tmp_path, "none") as running:
        running.wait_until_ready()
        with running.connect() as client:
            # In flight for as long as its body is not whole.
            head = "POST /v1/systemone HTTP/1.1\r\nhost: test\r\ncontent-type: application/json\r\n"
            client.sendall(f"{head}content-length: 1000\r\n\r\n{{".encode())
            time.sleep(0.3)
            worker = running.worker().pid
            running.process.send(signal.SIGTERM)
            running.process.wait_for("it stops", lambda event: "stopping" in event.text, 20)
            os.kill(worker, signal.SIGTERM)
            running.process.wait_for("it is gone", lambda event: "is gone" in event.text, 20)
            # Longer than the wait before a restart.
            time.sleep(1)
            assert running.starts() == 1
            assert running.process.is_alive()
            client.shutdown(socket.SHUT_WR)
        assert running.process.wait_for_exit(20) == 0
        assert running.starts() == 1


def test_a_worker_that_is_killed_while_the_frontend_stops_is_not_restarted(tmp_path: Path) -> None:
    with FakeWorker(tmp_path, "slow", "600", DRAIN_TIMEOUT="20s") as running:
        asked = with_one_in_flight(running)
        worker = running.worker().pid
        running.process.send(signal.SIGTERM)
        running.process.wait_for("it stops", lambda event: "stopping" in event.text, 20)
        kill(worker)
        assert asked.wait().status == 502
        assert running.process.wait_for_exit(20) == 0
        assert running.starts() == 1


def test_a_worker_that_is_sent_sigterm_alone_answers_what_it_has_and_is_restarted(
    tmp_path: Path,
) -> None:
    with FakeWorker(tmp_path, "drain", SECONDS, **SOON) as running:
        admin = admin_of(running)
        asked = with_one_in_flight(running)
        os.kill(running.worker().pid, signal.SIGTERM)
        wait_until_not_ready(admin)
        refused = running.decide({"state": "another one"})
        assert refused.status == 503
        assert asked.wait().status == 200
        running.wait_until_ready(20)
        assert running.starts() == 2
        assert "stopped answering" not in running.process.log
        assert "somebody else asked it to stop" in running.process.log


def test_the_real_worker_and_its_frontend_asked_to_stop_at_once() -> None:
    questions = {
        f"q{index}": {"type": "noul", "instructions": "Does the customer ask for a refund?"}
        for index in range(64)
    }
    body = {"state": "word " * 2000, "questions": questions}
    with OmniJev({"WORKER_HANG_TIMEOUT": "1s"}) as running:
        running.wait_until_ready()
        answers: list[Answer] = []
        thread = threading.Thread(target=lambda: answers.append(running.decide(body)))
        thread.start()
        time.sleep(0.7)
        worker = running.worker().pid
        running.process.send(signal.SIGTERM)
        os.kill(worker, signal.SIGTERM)
        thread.join(60)
        assert [answer.status for answer in answers] == [200]
        assert running.process.wait_for_exit(60) == 0
        assert "SIGABRT" not in running.process.log


def test_two_interrupts_at_once_are_one_request_to_stop(tmp_path: Path) -> None:
    with FakeWorker(tmp_path, "slow", "2") as running:
        asked = with_one_in_flight(running)
        # As Ctrl-C under a program that also passes it on.
        running.process.send(signal.SIGINT)
        running.process.send(signal.SIGINT)
        running.process.wait_for("it stops", lambda event: event["signal"] == "SIGINT", 20)
        running.process.send(signal.SIGTERM)
        assert asked.wait().status == 200
        assert running.process.wait_for_exit(20) == 0

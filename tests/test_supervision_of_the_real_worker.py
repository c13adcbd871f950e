"""Rows of the matrix with the real worker, on the demo checkpoint, and with clients in flight."""

import signal
import time

from tests.harness.client import Answer
from tests.harness.clients import Clients, assert_ended_with, assert_soon
from tests.harness.logged_process import kill
from tests.harness.omni_jev import START_SECONDS, OmniJev

QUESTION = {"type": "noul", "instructions": "Does the customer ask for a refund?"}


def many_questions(number: str, count: int = 16) -> dict[str, object]:
    """Make a request that takes the model a while."""
    questions = {f"q{index}": QUESTION for index in range(count)}
    state = "Please refund the charge. " * 5 + number
    return {"model": "demo", "state": state, "questions": questions}


def answered_all(_: str, answer: Answer) -> None:
    assert len(answer.json()["answers"]) == 16


def test_the_real_worker_killed_when_ready_and_asked_to_stop_during_a_long_inference() -> None:
    with OmniJev() as running:
        running.wait_until_ready()
        with Clients(running.address, body=many_questions, check=answered_all) as clients:
            clients.wait_for(200, since=0, seconds=60)
            worker = running.worker().pid
            clients.hold(worker)
            killed = time.monotonic()
            kill(worker)
            lost = clients.in_flight_at(killed)
            assert {one.status for one in lost} == {502}
            assert all("SIGKILL" in one.message for one in lost)
            assert_soon(lost, killed, 1)
            waiting = clients.wait_for(503, since=killed)
            assert "starting" in waiting.message or "restarted" in waiting.message
            clients.wait_for(200, since=killed, seconds=START_SECONDS)
            clients.wait_until_waiting(held=0.02)
            asked = time.monotonic()
            assert running.terminate(60) == 0
            finished = [one for one in clients.seen() if one.sent < asked < one.known]
            assert_ended_with(finished, 200, within=30)
        assert set(clients.statuses()) <= {200, 502, 503, 0}


def test_the_real_workers_frontend_killed_when_ready() -> None:
    with OmniJev() as running:
        running.wait_until_ready()
        with Clients(running.address, body=many_questions, check=answered_all) as clients:
            clients.hold(running.process.pid)
            killed = time.monotonic()
            running.process.send(signal.SIGKILL)
            running.process.wait_for_exit()
            assert running.left_after(2) == []
            cut = clients.in_flight_at(killed)
            assert {one.status for one in cut} == {0}
            assert_soon(cut, killed, 1)


def test_the_real_workers_frontend_killed_200_ms_after_the_spawn() -> None:
    with OmniJev() as running, Clients(running.address) as clients:
        running.wait_for_process()
        time.sleep(0.2)
        assert running.processes(), "there must be a worker for this to show anything"
        running.process.send(signal.SIGKILL)
        running.process.wait_for_exit()
        assert running.left_after(2) == []
        clients.wait_for(0, since=0)
        assert set(clients.statuses()) <= {503, 0}

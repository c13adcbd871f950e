"""Everything that can become of a worker, each with clients in flight.

Every row says what the clients saw and how long it took; leaving the `with` of the binary asserts
that no process is left, leaving that of the clients that each answer was the right one or an honest
refusal, and that none is missing.
"""

import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness.clients import Clients, assert_ended_with, assert_soon
from tests.harness.fakes import FakeWorker, fake_python
from tests.harness.logged_process import kill
from tests.harness.omni_jev import OmniJev

# What a busy machine may add to any time below.
SLACK = 5.0

# A worker that fails often in a row, and is started again at once each time.
PATIENT = {"WORKER_MAX_FAILURES": "100", "WORKER_MAX_RESTART_DELAY": "50ms"}


def test_killed_when_ready(tmp_path: Path) -> None:
    with FakeWorker(tmp_path, "slow", "20") as running:
        running.wait_until_ready()
        with Clients(running.address) as clients:
            clients.wait_until_waiting(held=0.1)
            killed = time.monotonic()
            kill(running.worker().pid)
            lost = clients.in_flight_at(killed)
            # Within a second: 502, and why. One that was sent but not yet forwarded may be a 503.
            assert {one.status for one in lost} <= {502, 503}
            assert_soon(lost, killed, 1)
            cut_off = [one for one in lost if one.status == 502]
            assert cut_off
            assert all("SIGKILL" in one.message and "memory" in one.message for one in cut_off)
            running.wait_until_ready()
            kill(running.worker().pid)
        assert set(clients.statuses()) <= {502, 503}
        assert running.starts() >= 2


@pytest.mark.parametrize(
    ("vice", "phase", "words"),
    [
        ("load-long-at-first", "load", "loading the checkpoint"),
        ("import-long-at-first", "import", "importing its libraries"),
    ],
)
def test_killed_while_it_starts(tmp_path: Path, vice: str, phase: str, words: str) -> None:
    with FakeWorker(tmp_path, vice) as running, Clients(running.address) as clients:
        running.process.wait_for("the phase", lambda event: event["phase"] == phase)
        waiting = clients.wait_for(503, since=time.monotonic(), count=5)
        # They are told the phase in words, and when to come back.
        assert words in waiting.message
        killed = time.monotonic()
        kill(running.worker().pid)
        answered = clients.wait_for(200, since=killed)
        assert answered.known - killed < 2 + SLACK
        assert set(clients.statuses()) == {503, 200}
        assert max(one.took for one in clients.seen()) < 1


def test_stopped_by_a_signal(tmp_path: Path) -> None:
    with FakeWorker(tmp_path, "none", WORKER_HANG_TIMEOUT="4s") as running:
        running.wait_until_ready()
        with Clients(running.address) as clients:
            clients.wait_for(200, since=0)
            stopped = time.monotonic()
            os.kill(running.worker().pid, signal.SIGSTOP)
            answered = clients.wait_for(200, since=stopped + 0.5)
            assert answered.known - stopped < 4 + SLACK
            hung = clients.in_flight_at(stopped + 1)
            assert {one.status for one in hung} == {502}
            assert all("stopped answering" in one.message for one in hung)
            assert set(clients.statuses()) <= {200, 502, 503}
        running.process.wait_for("SIGABRT", lambda event: "SIGABRT" in event.text)


def test_exits_soon_after_each_ready(tmp_path: Path) -> None:
    with FakeWorker(tmp_path, "exit-soon-after-ready", "0.3", "20") as running:
        with Clients(running.address) as clients:
            assert running.process.wait_for_exit(60) == 1
        # The first five, with longer and longer waits between them; then the end, and why.
        assert running.starts() == 5
        assert "the worker failed 5 times" in running.process.events[-1].text
        # Refused connections (0) only once nobody listened.
        assert set(clients.statuses()) <= {200, 502, 503, 0}
        answers = [one.known for one in clients.seen() if one.status]
        refused = [one.sent for one in clients.seen() if not one.status]
        assert not refused or min(refused) > max(answers) - 0.5


def test_exits_soon_after_ready_twenty_times_and_then_no_more(tmp_path: Path) -> None:
    with FakeWorker(tmp_path, "exit-soon-after-ready", "0.1", "20", **PATIENT) as running:
        with Clients(running.address) as clients:
            running.process.wait_for(
                "the 21st start", lambda event: "(20 of at most 100)" in event.text, 60
            )
            calm = time.monotonic()
            answered = clients.wait_for(200, since=calm, count=20)
            assert answered.known - calm < 2 + SLACK
        assert running.starts() == 21
        assert set(clients.statuses()) <= {200, 502, 503}
        assert max(one.took for one in clients.seen()) < 1 + SLACK


@pytest.mark.parametrize("code", [64, 78])
def test_a_configuration_that_cannot_work(tmp_path: Path, code: int) -> None:
    begun = time.monotonic()
    with FakeWorker(tmp_path, "exit", str(code), "no such checkpoint") as running:
        with Clients(running.address) as clients:
            assert running.process.wait_for_exit(30) == code
        assert time.monotonic() - begun < 5 + SLACK
        assert running.process.events[-1].text == "omni-jev: cannot go on: no such checkpoint"
        # By the worker, and in the last line.
        assert running.process.log.count("no such checkpoint") == 2
        assert "for good" not in running.process.log
        assert running.starts() == 1
        assert set(clients.statuses()) <= {503, 0}


def test_never_ready(tmp_path: Path) -> None:
    settings = {"WORKER_START_DEADLINE": "1s", "WORKER_MAX_FAILURES": "2"}
    begun = time.monotonic()
    with FakeWorker(tmp_path, "load-for-ever", **settings) as running:
        with Clients(running.address) as clients:
            assert running.process.wait_for_exit(60) == 1
        assert 2 < time.monotonic() - begun < 5 + SLACK
        assert "no progress for 1 s while loading the checkpoint" in running.process.events[-1].text
        assert running.starts() == 2
        assert set(clients.statuses()) <= {503, 0}


@pytest.mark.parametrize("vice", ["unhealthy", "silent"])
def test_ready_and_then_its_health_fails(tmp_path: Path, vice: str) -> None:
    with FakeWorker(tmp_path, "none", WORKER_HANG_TIMEOUT="4s") as running:
        running.wait_until_ready()
        with Clients(running.address) as clients:
            clients.wait_for(200, since=0)
            broken = time.monotonic()
            first = running.switch_on(vice)
            clients.wait_for(503, since=broken)
            answered = clients.wait_for(200, since=clients.wait_for(503, since=broken).known)
            assert answered.known - broken < 4 + SLACK
            assert running.worker().pid != first
        assert set(clients.statuses()) <= {200, 502, 503}


def test_its_health_is_fine_but_no_inference_returns(tmp_path: Path) -> None:
    settings = {"BACKEND_TIMEOUT": "1s", "WORKER_HANG_TIMEOUT": "4s"}
    with FakeWorker(tmp_path, "none", **settings) as running:
        running.wait_until_ready()
        with Clients(running.address) as clients:
            clients.wait_for(200, since=0)
            hung = time.monotonic()
            running.switch_on("hang-inference")
            late = clients.wait_for(504, since=hung)
            assert 1 <= late.took < 2 + SLACK
            answered = clients.wait_for(200, since=late.known)
            # The frontend's own deadline, the time for hangs, and the restart.
            assert 5 <= answered.known - hung < 5 + 1 + SLACK
        running.process.wait_for(
            "the reason", lambda event: "no request has been answered for 5." in event.text, 5
        )
        assert running.starts() == 2
        assert set(clients.statuses()) <= {200, 502, 503, 504}


def test_preparing_another_checkpoint_is_no_hang(tmp_path: Path) -> None:
    settings = {"BACKEND_TIMEOUT": "1s", "WORKER_HANG_TIMEOUT": "3s"}
    with FakeWorker(tmp_path, "prepare", "5.5", **settings) as running:
        running.wait_until_ready()
        with Clients(running.address, count=1) as clients:
            late = clients.wait_for(504, since=0, count=4)
            # Longer than a hang may last, and then as before.
            clients.wait_for(200, since=late.known)
        assert running.starts() == 1
        assert set(clients.statuses()) <= {200, 504}


def test_floods_its_log(tmp_path: Path) -> None:
    # At a level that the flood has not: what is measured is whether it is read.
    with FakeWorker(tmp_path, "flood", LOG="warn,omni_jev=info,omni_jev::access=off") as running:
        running.wait_until_ready()
        with Clients(running.address) as clients:
            clients.wait_for(200, since=0, count=30)
        assert set(clients.statuses()) == {200}
        assert running.starts() == 1


@pytest.mark.parametrize("group", ["same-group", "daemon"])
def test_leaves_a_grandchild_that_keeps_its_socket(tmp_path: Path, group: str) -> None:
    with FakeWorker(tmp_path, "grandchild", group) as running:
        running.wait_until_ready()
        with Clients(running.address, count=1) as clients:
            clients.wait_until_waiting(held=0.1)
            worker = running.worker().pid
            wait_for_children(running, 2)
            killed = time.monotonic()
            kill(worker)
            lost = clients.in_flight_at(killed)
            # The grandchild holds the connection open, and the client is not kept waiting by it.
            assert {one.status for one in lost} == {502}
            assert_soon(lost, killed, 1)
            running.wait_until_ready()
            kill(running.worker().pid)
        assert set(clients.statuses()) <= {502, 503}


def wait_for_children(running: OmniJev, count: int, seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while len(running.processes()) < count:
        assert time.monotonic() < deadline, running.processes()
        time.sleep(0.01)


def test_ignores_sigterm(tmp_path: Path) -> None:
    with FakeWorker(tmp_path, "ignore-sigterm", WORKER_STOP_GRACE="500ms") as running:
        running.wait_until_ready()
        with Clients(running.address) as clients:
            clients.wait_for(200, since=0)
            asked = time.monotonic()
            assert running.terminate(20) == 0
            assert 0.5 <= time.monotonic() - asked < 2 + SLACK
        assert running.processes() == []
        assert set(clients.statuses()) <= {200, 503, 0}


def test_closes_its_socket_but_lives(tmp_path: Path) -> None:
    with FakeWorker(tmp_path, "close-socket", WORKER_HANG_TIMEOUT="4s") as running:
        running.wait_until_ready()
        with Clients(running.address) as clients:
            # Kept connections still work, and what the frontend knows best is what the probes find.
            refused = clients.wait_for(503, since=time.monotonic())
            answered = clients.wait_for(200, since=refused.sent)
            assert answered.known - refused.sent < 1 + SLACK
            ended = running.process.wait_for("why", lambda e: "ending the worker" in e.text)
            assert "its health failed 3 times" in ended.text
        assert running.starts() == 2
        assert set(clients.statuses()) <= {200, 502, 503}


def when_ready(running: FakeWorker) -> None:
    running.wait_until_ready()


def after_200_ms(running: FakeWorker) -> None:
    running.wait_for_process()
    time.sleep(0.2)


def during_a_restart(running: FakeWorker) -> None:
    running.wait_until_ready()
    kill(running.worker().pid)
    running.process.wait_for("it fails", lambda event: "next start in" in event.text)
    running.wait_for_process()


@pytest.mark.parametrize("moment", [when_ready, after_200_ms, during_a_restart])
def test_the_frontend_is_killed(tmp_path: Path, moment: Callable[[FakeWorker], None]) -> None:
    with FakeWorker(tmp_path, "slow", "20") as running:
        with Clients(running.address) as clients:
            moment(running)
            assert running.processes(), "there must be a worker for this to show anything"
            killed = time.monotonic()
            running.process.send(signal.SIGKILL)
            running.process.wait_for_exit()
            assert running.left_after(2) == []
            # Whoever waited knows at once: the connection is gone.
            clients.wait_for(0, since=0)
            cut = [seen for seen in clients.seen() if seen.sent < killed < seen.known]
            assert not cut or max(seen.known for seen in cut) - killed < 1
        # 502 only from the worker's own death, in the row that begins with one.
        assert set(clients.statuses()) <= {502, 503, 0}


def test_asked_to_stop_during_a_long_inference(tmp_path: Path) -> None:
    with FakeWorker(tmp_path, "slow", "1.5") as running:
        running.wait_until_ready()
        with Clients(running.address) as clients:
            clients.wait_until_waiting(held=0.1)
            asked = time.monotonic()
            assert running.terminate(20) == 0
            assert time.monotonic() - asked < 1.5 + SLACK
            finished = [seen for seen in clients.seen() if seen.sent < asked]
            assert_ended_with(finished, 200, within=1.5 + SLACK)
        assert running.starts() == 1


def test_interrupted_twice(tmp_path: Path) -> None:
    with FakeWorker(tmp_path, "slow", "20") as running:
        running.wait_until_ready()
        with Clients(running.address) as clients:
            clients.wait_until_waiting(held=0.1)
            running.process.send(signal.SIGINT)
            running.process.wait_for("it stops", lambda event: event["signal"] == "SIGINT")
            # As a hand would: two within a tenth of a second count as one.
            time.sleep(0.2)
            again = time.monotonic()
            running.process.send(signal.SIGINT)
            assert running.process.wait_for_exit(20) == 1
            assert time.monotonic() - again < 1 + SLACK
            assert running.processes() == []
        # Whoever waited was cut off: that is what the second one asks for.
        assert set(clients.statuses()) <= {502, 0}


def test_the_python_environment_goes_missing(tmp_path: Path) -> None:
    with FakeWorker(tmp_path, "none", **PATIENT) as running:
        running.wait_until_ready()
        with Clients(running.address) as clients:
            clients.wait_for(200, since=0)
            running.python.unlink()
            killed = time.monotonic()
            kill(running.worker().pid)
            clients.wait_for(503, since=killed, count=20)
            running.process.wait_for("the reason", lambda event: "cannot run" in event.text)
            fake_python(tmp_path)
            made = time.monotonic()
            answered = clients.wait_for(200, since=made)
            assert answered.known - made < 2 + SLACK
        assert set(clients.statuses()) <= {200, 502, 503}


def test_its_memory_grows_over_the_limit(tmp_path: Path) -> None:
    # Each decision takes 20 MB more.
    with FakeWorker(tmp_path, "grow", WORKER_MAX_RSS="120MiB", **PATIENT) as running:
        running.wait_until_ready()
        with Clients(running.address, count=1, pause=0.6) as clients:
            replaced = running.process.wait_for(
                "the limit", lambda event: "replacing the worker: its memory" in event.text, 40
            )
            assert "over the limit of 120 MiB" in replaced.text
            answered = clients.wait_for(200, since=time.monotonic())
            assert answered.took < 1 + SLACK
        # Between requests: none was lost.
        assert set(clients.statuses()) <= {200, 503}
        assert running.starts() >= 2


def test_a_process_that_it_started_holds_more_than_the_limit(tmp_path: Path) -> None:
    with FakeWorker(tmp_path, "large-helper", WORKER_MAX_RSS="150MiB", **PATIENT) as running:
        running.wait_until_ready()
        replaced = running.process.wait_for(
            "the limit", lambda event: "replacing the worker: its memory" in event.text, 40
        )
        assert "over the limit of 150 MiB" in replaced.text


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a full queue looks like no listener")
def test_behind_with_accepting_it_is_waited_for_and_is_not_taken_for_stuck(tmp_path: Path) -> None:
    # It accepts 20 connections a second, and its queue is full all the time.
    with FakeWorker(tmp_path, "behind") as running:
        running.wait_until_ready()
        with Clients(running.address, count=6) as clients:
            # For longer than three probes that are refused at once.
            clients.wait_for(200, since=0, count=160, seconds=60)
        assert set(clients.statuses()) == {200}
        assert running.starts() == 1


def test_loses_its_device_and_returns_to_it(tmp_path: Path) -> None:
    with FakeWorker(tmp_path, "lost-device") as running:
        running.wait_until_ready()
        with Clients(running.address) as clients:
            running.process.wait_for("it returns", lambda e: "back on its device" in e.text, 20)
            clients.wait_for(200, since=time.monotonic(), count=5)
        assert set(clients.statuses()) == {200}
        assert running.starts() == 1


def test_loses_its_device_for_good_and_is_replaced_in_a_quiet_moment(tmp_path: Path) -> None:
    with FakeWorker(tmp_path, "lost-for-good") as running:
        running.wait_until_ready()
        with Clients(running.address, count=1, pause=0.8) as clients:
            running.process.wait_for(
                "it is replaced",
                lambda e: "cannot return to it: the device is gone" in e.text,
                20,
            )
            clients.wait_for(200, since=time.monotonic(), count=2)
        assert set(clients.statuses()) <= {200, 503}
        assert running.starts() == 2


def test_a_device_is_left_lost_where_that_is_asked_for(tmp_path: Path) -> None:
    flags = ["--recover-device=false"]
    with FakeWorker(tmp_path, "lost-for-good", arguments=flags) as running:
        running.wait_until_ready()
        with Clients(running.address, count=1, pause=0.8) as clients:
            clients.wait_for(200, since=0, count=4)
        assert set(clients.statuses()) == {200}
        assert running.starts() == 1


def test_nothing_is_sent_to_a_worker_that_is_gone(tmp_path: Path) -> None:
    with FakeWorker(tmp_path, "none") as running:
        running.wait_until_ready()
        old = running.worker_socket()
        with Clients(running.address) as clients:
            clients.wait_for(200, since=0)
            kill(running.worker().pid)
            answered = clients.wait_for(200, since=time.monotonic() + 0.1)
            assert answered.took < 1 + SLACK
            # Whoever listened where the old one did would get nothing.
            assert not old.exists()
            with socket.socket(socket.AF_UNIX) as trap:
                trap.bind(str(old))
                trap.listen()
                clients.wait_for(200, since=time.monotonic(), count=20)
                trap.settimeout(0)
                with pytest.raises(BlockingIOError):
                    trap.accept()

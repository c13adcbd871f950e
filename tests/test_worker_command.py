"""`omni-jev worker …`: a look at the workers of a running binary, and a word to them."""

import json
import os
import stat
import subprocess
import time
from pathlib import Path
from typing import Any

from tests.harness.clients import Clients
from tests.harness.fakes import FakeWorker
from tests.harness.logged_process import kill
from tests.harness.omni_jev import OmniJev, binary, clean_environment, make_scratch

TWO_WORKERS = """
[[worker]]
name = "main"

[[worker]]
name = "spare"
python = "{python}"
args = "none"
"""


def command(scratch: Path, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run `omni-jev worker` beside the binary of that scratch folder."""
    return subprocess.run(
        [binary(), "worker", *words],
        env=clean_environment(scratch),
        capture_output=True,
        text=True,
        timeout=60,
        check=check,
    )


def status(running: OmniJev, name: str | None = None) -> Any:
    words = ["status", "--json", *([name] if name else [])]
    workers = json.loads(command(running.scratch, *words).stdout)
    return workers[0] if name else workers


def wait_for_state(running: OmniJev, name: str, state: str, seconds: float = 30) -> Any:
    deadline = time.monotonic() + seconds
    while (worker := status(running, name))["state"] != state:
        assert time.monotonic() < deadline, worker
        time.sleep(0.05)
    return worker


def two_workers(folder: Path) -> FakeWorker:
    toml = TWO_WORKERS.format(python=folder / "python")
    return FakeWorker(folder, "none", toml=toml)


def test_status_shows_every_worker_and_restarts_with_their_reasons(tmp_path: Path) -> None:
    with two_workers(tmp_path) as running:
        running.wait_until_ready()
        wait_for_state(running, "spare", "ready")
        before = wait_for_state(running, "main", "ready")
        kill(before["pid"])
        deadline = time.monotonic() + 20
        while (main := status(running, "main"))["restarts"] == 0 or main["state"] != "ready":
            assert time.monotonic() < deadline, main
            time.sleep(0.05)
        assert main["pid"] != before["pid"]
        assert (main["phase"], main["device"]) == ("ready", "cpu")
        assert (main["checkpoint"], main["revision"]) == ("fake", "r1")
        assert main["memory_bytes"] > 1_000_000
        assert 0 <= main["uptime_s"] < 30
        (end,) = main["ends"]
        assert not end["planned"]
        assert "SIGKILL" in end["reason"]
        text = command(running.scratch, "status").stdout
        lines = text.splitlines()
        headings = ("NAME", "STATE", "PHASE", "PID", "UPTIME", "RESTARTS", "DEVICE", "MEMORY")
        assert lines[0].split() == [*headings, "CHECKPOINT"]
        assert lines[1].split()[:4] == ["main", "ready", "ready", str(main["pid"])]
        assert lines[2].split()[0] == "spare"
        assert "process 1 failed: it was killed by signal 9 (SIGKILL)" in text


def test_a_workers_memory_is_that_of_the_processes_too_that_it_started(tmp_path: Path) -> None:
    with FakeWorker(tmp_path, "large-helper") as running:
        running.wait_until_ready()
        deadline = time.monotonic() + 20
        while (status(running, "worker")["memory_bytes"] or 0) < 200_000_000:
            assert time.monotonic() < deadline, status(running, "worker")
            time.sleep(0.05)


def test_a_restart_loses_no_request(tmp_path: Path) -> None:
    with FakeWorker(tmp_path, "slow", "0.3") as running:
        running.wait_until_ready()
        with Clients(running.address) as clients:
            clients.wait_for(200, since=0)
            first = running.worker().pid
            asked = time.monotonic()
            printed = command(running.scratch, "restart").stdout
            assert printed.startswith("worker: the worker is ")
            clients.wait_for(503, since=asked)
            clients.wait_for(200, since=clients.wait_for(503, since=asked).known)
            assert running.worker().pid != first
        assert set(clients.statuses()) == {200, 503}
        (end,) = status(running, "worker")["ends"]
        assert end["planned"]
        assert end["reason"].startswith("a restart was asked for")


def test_a_stopped_worker_stays_so_until_a_restart(tmp_path: Path) -> None:
    with FakeWorker(tmp_path, "none") as running:
        running.wait_until_ready()
        with Clients(running.address) as clients:
            clients.wait_for(200, since=0)
            command(running.scratch, "stop", "worker")
            stopped = wait_for_state(running, "worker", "halted")
            assert stopped["pid"] is None
            assert running.processes() == []
            refused = clients.wait_for(503, since=time.monotonic(), count=5)
            assert refused.message == "the worker was stopped by hand and waits to be started"
            command(running.scratch, "restart", "worker")
            clients.wait_for(200, since=time.monotonic())
        assert set(clients.statuses()) == {200, 503}
        # The binary itself stops as ever, with a worker that is stopped too.
        command(running.scratch, "stop")
        wait_for_state(running, "worker", "halted")
        assert running.terminate() == 0


def test_one_workers_failure_is_not_the_others(tmp_path: Path) -> None:
    toml = TWO_WORKERS.replace('args = "none"', 'args = ["exit", "78", "no device"]')
    toml = toml.format(python=tmp_path / "python")
    with FakeWorker(tmp_path, "none", toml=toml) as running:
        running.wait_until_ready()
        failed = wait_for_state(running, "spare", "failed")
        assert failed["ends"][-1]["reason"].endswith("cannot go on: no device")
        with Clients(running.address) as clients:
            clients.wait_for(200, since=0, count=5)
            starts = running.starts()
            # Asked by hand, it is tried again.
            command(running.scratch, "restart", "spare")
            deadline = time.monotonic() + 20
            while running.starts() == starts:
                assert time.monotonic() < deadline
                time.sleep(0.02)
        assert set(clients.statuses()) == {200}
        wait_for_state(running, "spare", "failed")


def test_logs_shows_the_last_lines_of_a_worker(tmp_path: Path) -> None:
    with FakeWorker(tmp_path, "none") as running:
        running.wait_until_ready()
        pid = running.worker().pid
        lines = command(running.scratch, "logs").stdout.splitlines()
        assert any(line.endswith(f"INFO  worker[{pid}] loading") for line in lines), lines
        assert "the worker is ready after" in lines[-1]
        last = command(running.scratch, "logs", "-n", "1", "--json").stdout.splitlines()
        assert len(last) == 1
        entry = json.loads(last[0])
        assert (entry["by"], entry["level"]) == ("supervisor", "info")


def test_what_a_worker_logs_is_an_object_in_the_json_log(tmp_path: Path) -> None:
    with FakeWorker(tmp_path, "none") as running:
        event = running.process.wait_for("importing", lambda event: "importing" in event.text)
        line = json.loads(event.text)
        assert (line["target"], line["message"], line["phase"]) == ("worker", "importing", "import")
        assert line["fields"] == {"threads": 2}


def test_the_control_socket_is_for_its_owner_alone_and_goes_with_the_binary(
    tmp_path: Path,
) -> None:
    with FakeWorker(tmp_path, "none") as running:
        running.wait_until_ready()
        (socket,) = running.scratch.glob("omni-jev-*/control.sock")
        assert stat.S_IMODE(socket.stat().st_mode) == 0o600
        assert stat.S_IMODE(socket.parent.stat().st_mode) == 0o700
        assert socket.parent.stat().st_uid == os.getuid()
        assert running.terminate() == 0
        assert list(running.scratch.glob("omni-jev-*")) == []


def test_whom_a_command_is_for_must_be_clear(tmp_path: Path) -> None:
    with two_workers(tmp_path) as running:
        running.wait_until_ready()
        unnamed = command(running.scratch, "restart", check=False)
        assert unnamed.returncode == 64
        assert "main, spare" in unnamed.stderr
        unknown = command(running.scratch, "stop", "nobody", check=False)
        assert (unknown.returncode, unknown.stdout) == (64, "")
        assert "no worker called nobody" in unknown.stderr
        other = command(running.scratch, "status", "--pid", "1", check=False)
        assert other.returncode == 69
        assert command(running.scratch, "status", "--pid", str(running.process.pid)).stdout


def test_without_a_running_binary_a_command_says_so() -> None:
    scratch = make_scratch()
    try:
        # Others may run on this machine, but none with this number.
        ended = command(scratch, "status", "--pid", "4294967295", check=False)
    finally:
        scratch.rmdir()
    assert ended.returncode == 69
    assert ended.stderr == "omni-jev: no omni-jev with the process id 4294967295 runs here\n"


def test_beside_a_binary_without_workers_a_command_says_so() -> None:
    with OmniJev({"BACKEND_URL": "http://127.0.0.1:9"}, worker_flags=()) as running:
        pid = running.process.pid
        deadline = time.monotonic() + 20
        while not list(running.scratch.glob("omni-jev-*/no-workers")):
            assert time.monotonic() < deadline, running.process.log
            time.sleep(0.02)
        for words in (["status"], ["restart"], ["logs"], ["status", "--pid", str(pid)]):
            ended = command(running.scratch, *words, check=False)
            assert (ended.returncode, ended.stdout) == (69, "")
            assert f"(process {pid}) keeps no worker alive" in ended.stderr
        assert running.terminate() == 0
        assert list(running.scratch.glob("omni-jev-*")) == []


def test_of_several_binaries_one_is_to_be_chosen(tmp_path: Path) -> None:
    with FakeWorker(tmp_path, "none") as first:
        first.wait_until_ready()
        beside = tmp_path / "beside-the-first"
        beside.write_text(f'#!/bin/sh\nXDG_RUNTIME_DIR={first.scratch} exec {binary()} "$@"\n')
        beside.chmod(0o755)
        with FakeWorker(tmp_path, "none", program=str(beside)) as second:
            second.wait_until_ready()
            pids = sorted([first.process.pid, second.process.pid])
            unclear = command(first.scratch, "status", check=False)
            assert unclear.returncode == 64
            assert f"--pid ({pids[0]}, {pids[1]})" in unclear.stderr
            chosen = command(first.scratch, "status", "--json", "--pid", str(second.process.pid))
            assert json.loads(chosen.stdout)[0]["pid"] == second.worker().pid

"""Standard output and standard error that nobody takes: requests and signals go on all the same."""

import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.harness.client import ask
from tests.harness.decisions import decision
from tests.harness.fakes import FakeWorker, fake_python
from tests.harness.omni_jev import OmniJev, binary, clean_environment, make_scratch
from tests.harness.servers import Reply, Server, replying

# What a pipe holds where it can be made small: one page.
SMALL = 4096

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="Linux has it, nobody else")


class Unread:
    """A binary whose standard error is a small pipe, of which the test reads when it likes."""

    def __init__(self, *arguments: str, **settings: str) -> None:
        self.scratch = make_scratch()
        self._read, write = os.pipe()
        if sys.platform == "linux":
            fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, SMALL)
        chosen = {"BIND": "127.0.0.1:0", "ADMIN_BIND": "127.0.0.1:0", **settings}
        environment = clean_environment(self.scratch)
        environment.update({f"OMNI_JEV_{name}": value for name, value in chosen.items()})
        self.process = subprocess.Popen(
            [binary(), *arguments],
            env=environment,
            cwd=self.scratch,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=write,
        )
        os.close(write)
        self.text = ""
        self.missing: list[bytes] = []
        self.address = self._address_of("frontend")
        self.admin = self._address_of("admin")

    def _address_of(self, listener: str) -> str:
        return self.read_until(rf'listener="{listener}" address=(\S+)')[1]

    def read_until(self, pattern: str, seconds: float = 30) -> re.Match[str]:
        deadline = time.monotonic() + seconds
        while not (found := re.search(pattern, self.text)):
            assert time.monotonic() < deadline, self.text[-2000:]
            more = os.read(self._read, 65536)
            assert more, f"no {pattern} in {self.text[-2000:]}"
            self.text += more.decode(errors="replace")
        return found

    def read_in_the_background(self) -> None:
        """Read all that comes, and keep only what is said of missing lines."""

        def read() -> None:
            rest = b""
            while more := os.read(self._read, 1 << 20):
                *lines, rest = (rest + more).split(b"\n")
                self.missing += [line for line in lines if b"lines are missing here" in line]

        threading.Thread(target=read, daemon=True).start()

    def leave(self) -> None:
        os.close(self._read)
        self._read = -1

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        if self._read >= 0:
            self.read_in_the_background()
        shutil.rmtree(self.scratch, ignore_errors=True)


@contextmanager
def unread(*arguments: str, **settings: str) -> Iterator[Unread]:
    running = Unread(*arguments, **settings)
    try:
        yield running
    finally:
        running.close()


NOBODY = {"BACKEND_URL": "http://127.0.0.1:9"}


def assert_it_answers(running: Unread, requests: int) -> None:
    for _ in range(requests):
        assert ask(running.address, "GET", "/health", timeout=10).status == 502
    assert ask(running.admin, "GET", "/livez", timeout=10).status == 200


def test_a_log_that_nobody_reads_holds_up_neither_requests_nor_a_stop() -> None:
    with unread(**NOBODY) as running:
        # Many times what the pipe holds.
        assert_it_answers(running, 100 if sys.platform == "linux" else 600)
        asked = time.monotonic()
        running.process.send_signal(signal.SIGINT)
        assert running.process.wait(20) == 0
        assert time.monotonic() - asked < 5


def test_a_log_whose_reader_is_gone_holds_up_neither_requests_nor_a_stop() -> None:
    with unread(**NOBODY) as running:
        running.leave()
        assert_it_answers(running, 20)
        running.process.send_signal(signal.SIGINT)
        assert running.process.wait(20) == 0


def test_a_log_that_is_read_again_says_how_much_is_missing(tmp_path: Path) -> None:
    worker = {"WORKER_PYTHON": str(fake_python(tmp_path)), "LOG": "info,omni_jev::access=off"}
    with unread("--", "flood", **worker) as running:
        deadline = time.monotonic() + 60
        pattern = r"^omni_jev_log_lines_dropped_total (\d+)"
        # The worker writes far more than the queue holds.
        while ask(running.address, "GET", "/health", timeout=10).status != 200:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        time.sleep(3)
        running.read_in_the_background()
        while not running.missing:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert re.search(rb"WARN .* lines=\d+", running.missing[0])
        metrics = ask(running.admin, "GET", "/metrics", timeout=10).body.decode()
        dropped = re.search(pattern, metrics, re.MULTILINE)
        assert dropped is not None, metrics[-2000:]
        assert int(dropped[1]) > 0
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(30) == 0


def run_with(redirection: str, *arguments: str) -> int:
    """Run the binary from a shell that sends its output elsewhere; its exit code."""
    scratch = make_scratch()
    try:
        return subprocess.run(
            ["bash", "-c", f'exec "$0" "$@" {redirection}', binary(), *arguments],
            env=clean_environment(scratch),
            cwd=scratch,
            stdin=subprocess.DEVNULL,
            timeout=30,
            check=False,
        ).returncode
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


FULL = pytest.param("/dev/full", marks=linux_only, id="full")
GONE = pytest.param(" >(exec true)", id="reader-gone")
CLOSED = pytest.param("&-", id="closed")


@pytest.mark.parametrize("where", [FULL, GONE, CLOSED])
def test_a_wrong_setting_exits_64_wherever_standard_error_goes(where: str) -> None:
    assert run_with(f"2>{where}", "--bind", "nowhere") == 64


@pytest.mark.parametrize("where", [FULL, GONE, CLOSED])
def test_it_becomes_ready_and_stops_wherever_standard_output_goes(
    tmp_path: Path, where: str
) -> None:
    program = tmp_path / "omni-jev-elsewhere"
    program.write_text(f'#!/usr/bin/env bash\nexec {binary()} "$@" >{where}\n')
    program.chmod(0o755)
    with FakeWorker(tmp_path, "none", program=str(program), LOG_FORMAT="text") as running:
        process = running.process
        ready = process.wait_for("ready", lambda event: " ready address=" in event.text, 30)
        address = ready.text.rpartition("address=")[2]
        if where != "&-":  # Then it is /dev/null, where all is well.
            process.wait_for("warned", lambda e: "standard output cannot be written" in e.text, 30)
        deadline = time.monotonic() + 20
        while ask(address, "GET", "/health").status != 200:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send(signal.SIGTERM)
        assert process.wait_for_exit(30) == 0


@contextmanager
def tracing(trace: Path) -> Iterator[OmniJev]:
    """Start a binary with two lanes that answer at once, and a trace."""
    with Server(replying(lambda _: Reply(200, b"{}"))) as lane:
        table = '[[lane]]\nname = "{}"\nurl = "{}"\n'
        tables = "".join(table.format(name, lane.url) for name in ("main", "other"))
        with OmniJev({"TRACE": str(trace)}, worker_flags=(), toml=tables) as running:
            yield running


@linux_only
def test_a_trace_that_cannot_be_written_is_told_at_the_first_line() -> None:
    with tracing(Path("/dev/full")) as running:
        assert running.decide(decision()).status == 200
        running.process.wait_for(
            "it says so",
            lambda event: "the trace cannot be written" in event.text,
            seconds=20,
        )


def test_a_trace_that_nobody_reads_holds_up_neither_the_start_nor_the_end(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with tracing(pipe) as running:
        assert running.decide(decision()).status == 200
        assert running.terminate(30) == 0

"""The real binary: started with settings, watched by its log, ended without a trace."""

import os
import re
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.harness.client import Answer, ask, assert_unavailable
from tests.harness.logged_process import LoggedProcess, kill
from tests.harness.process_table import Process, processes_marked

ROOT = Path(__file__).resolve().parents[2]
DEMO_CHECKPOINT = ROOT / "recipe" / "demo" / "checkpoint"

# Long enough for torch's import on a busy two-core machine.
START_SECONDS = 180.0


def binary() -> Path:
    """Find the binary under test."""
    named = os.environ.get("OMNI_JEV_BINARY")
    if named:
        return Path(named).resolve()
    for profile in ("release", "debug"):
        path = ROOT / "target" / profile / "omni-jev"
        if path.exists():
            return path
    raise AssertionError("no omni-jev to test: run cargo build --package omni-jev")


def make_scratch() -> Path:
    """Make a private folder with a short name: socket paths end at about 104 bytes."""
    return Path(tempfile.mkdtemp(prefix="oj-", dir="/tmp")).resolve()


def clean_environment(scratch: Path) -> dict[str, str]:
    """Make an environment without settings of the machine, marked with the scratch folder."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("OMNI_JEV_", "LAYA_"))
    }
    source = str(ROOT / "worker-py" / "src")
    path = os.environ.get("PYTHONPATH")
    return kept | {
        "PYTHONPATH": f"{source}{os.pathsep}{path}" if path else source,
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "XDG_RUNTIME_DIR": str(scratch),
        "TMPDIR": str(scratch),
    }


class OmniJev:
    """A running binary; leaving the `with` ends it and asserts that no process is left.

    `settings` are names without their `OMNI_JEV_`; None takes one of the defaults away. `variables`
    are others of the environment, by their whole names.
    """

    def __init__(
        self,
        settings: Mapping[str, str | None] | None = None,
        *,
        arguments: Sequence[str] = (),
        worker_flags: Sequence[str] = ("--model", "demo"),
        toml: str | None = None,
        program: Path | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        program = program or binary()
        self.scratch = make_scratch()
        if toml is not None:
            (self.scratch / "omni-jev.toml").write_text(toml)
        chosen: dict[str, str | None] = {
            "BIND": "127.0.0.1:0",
            "ADMIN_BIND": "off",
            "LOG_FORMAT": "json",
        }
        if not (settings or {}).get("BACKEND_URL"):
            chosen["WORKER_PYTHON"] = sys.executable
        chosen.update(settings or {})
        environment = clean_environment(self.scratch)
        environment.update(
            {f"OMNI_JEV_{name}": value for name, value in chosen.items() if value is not None}
        )
        environment.update(variables or {})
        flags = ["--", *worker_flags] if worker_flags else []
        self.process = LoggedProcess(
            [program, *arguments, *flags], environment, directory=self.scratch
        )
        self._address: str | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.process.close()
        # A killed binary's worker needs a moment to notice.
        left = self.left_after(5)
        for process in left:
            kill(process.pid)
        shutil.rmtree(self.scratch, ignore_errors=True)
        if kind is None:
            assert not left, f"left behind: {left}"

    @property
    def address(self) -> str:
        """`host:port` of the frontend, as soon as it listens."""
        if self._address is None:
            self._address = self._listening("frontend")
        return self._address

    @property
    def admin_address(self) -> str:
        """`host:port` of the admin pages, where the settings have them on."""
        return self._listening("admin")

    def _listening(self, listener: str) -> str:
        event = self.process.wait_for(
            f"the {listener} listens",
            lambda event: event["message"] == "listening" and event["listener"] == listener,
            seconds=30,
        )
        return str(event["address"])

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        headers: Mapping[str, str] | None = None,
        timeout: float = 90,
    ) -> Answer:
        return ask(self.address, method, path, body, headers=headers, timeout=timeout)

    def connect(self) -> socket.socket:
        """Open a plain connection to the frontend."""
        host, _, port = self.address.rpartition(":")
        return socket.create_connection((host, int(port)), timeout=20)

    def decide(self, body: object) -> Answer:
        return self.ask("POST", "/v1/systemone", body)

    def wait_until_ready(self, seconds: float = START_SECONDS) -> Answer:
        """Ask until an answer comes; until then each one must be a 503 that says when to retry."""
        deadline = time.monotonic() + seconds
        while True:
            answer = self.ask("GET", "/health")
            if answer.status == 200:
                return answer
            assert_unavailable(answer)
            assert time.monotonic() < deadline, f"not ready in {seconds} s:\n{self.process.log}"
            self.process.wait_for_news(0.2)

    def processes(self) -> list[Process]:
        """All living processes that the binary started, directly or not."""
        found = processes_marked(str(self.scratch))
        return [process for process in found if process.pid != self.process.pid]

    def wait_for_process(self, seconds: float = 30) -> Process:
        """Wait for the binary's first child, from its fork on."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for process in self.processes():
                return process
            time.sleep(0.001)
        raise AssertionError(f"no worker in {seconds} s; the log:\n{self.process.log}")

    def worker(self) -> Process:
        """The one worker that runs."""
        workers = [process for process in self.processes() if "omni_jev_worker" in process.command]
        leaders = [process for process in workers if process.parent == self.process.pid]
        assert len(leaders) == 1, workers
        return leaders[0]

    def worker_socket(self) -> Path:
        found = re.search(r"--uds[ =](\S+)", self.worker().command)
        assert found, "the worker has no --uds flag"
        return Path(found[1])

    def left_after(self, seconds: float) -> list[Process]:
        """What still lives when nothing does any more, or when the time is up."""
        deadline = time.monotonic() + seconds
        while (left := self.processes()) and time.monotonic() < deadline:
            time.sleep(0.01)
        return left

    def terminate(self, seconds: float = 60) -> int:
        """Ask it to stop, and wait for its exit code."""
        self.process.send(signal.SIGTERM)
        return self.process.wait_for_exit(seconds)

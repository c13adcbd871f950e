"""A frontend with one lane or two, each worker on a core of its own where that can be done."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.gpu.servers import Frontend, StartFailed, environment
from benchmarks.worker.against_upstream import ONE_THREAD

_PATIENCE_S: Final = 300.0
_ENDING_S: Final = 60.0


@dataclass(frozen=True)
class Lane:
    """A `[[worker]]` table."""

    name: str
    args: str
    settings: str = ""
    """More lines of its table."""
    core: int | None = None


def can_pin() -> bool:
    """Whether a process can be kept on one core here."""
    return hasattr(os, "sched_setaffinity")


class Served(Frontend):
    """A running `omni-jev`; it ends with the block."""

    grace = _ENDING_S

    def __init__(self, binary: Path, lanes: Sequence[Lane]) -> None:
        # Short: socket paths end at about 104 bytes.
        self.scratch = Path(tempfile.mkdtemp(prefix="oj-", dir="/tmp"))
        self._binary = binary
        self.trace = self.scratch / "trace.jsonl"
        tables = [f"[[worker]]\n{_table(lane, self.scratch)}" for lane in lanes]
        settings = [
            'bind = "127.0.0.1:0"',
            'admin_bind = "off"',
            'log_format = "json"',
            # More than wait at once: nothing but a lane's own queue is to refuse.
            "max_connections = 16384",
            "max_in_flight = 16384",
            f"trace = {json.dumps(str(self.trace))}",
        ]
        (self.scratch / "omni-jev.toml").write_text("\n".join([*settings, "", *tables]))
        self._environment = environment(self.scratch) | ONE_THREAD
        super().__init__([binary], self._environment, self.scratch, self.scratch / "log")
        try:
            for lane in lanes:
                self._until_lane(lane.name)
        except BaseException:
            self.stop()
            raise

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens. Raises `StartFailed`."""
        found = super().address
        if found is None:
            raise StartFailed("omni-jev does not say where it listens")
        return found

    def stop(self) -> None:
        """End it, and leave nothing."""
        super().stop()
        shutil.rmtree(self.scratch, ignore_errors=True)

    def kill(self, lane: str) -> None:
        """End a lane's process without a word."""
        os.kill(int(self.worker(lane)["pid"]), signal.SIGKILL)

    def worker(self, lane: str) -> dict[str, Any]:
        """Give what `omni-jev worker status` says of it. Raises `LookupError`."""
        shown = subprocess.run(
            [self._binary, "worker", "status", lane, "--json"],
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        if shown.returncode != 0:
            raise LookupError(shown.stderr.strip())
        found: dict[str, Any] = json.loads(shown.stdout)[0]
        return found

    def traced(self) -> list[dict[str, Any]]:
        """Give the lines of the trace so far."""
        lines = self.trace.read_text(encoding="utf-8").splitlines()
        return [line for line in map(json.loads, lines) if "id" in line]

    def warnings(self) -> list[dict[str, Any]]:
        """Give what frontend and workers warned of so far, or called an error."""
        return [event for event in self.events() if event.get("level") in {"WARN", "ERROR"}]

    def _state(self, lane: str) -> str:
        try:
            return str(self.worker(lane)["state"])
        except LookupError:
            return "starting"

    def _until_lane(self, lane: str) -> None:
        end = time.monotonic() + _PATIENCE_S
        while self._state(lane) != "ready":
            if self.process.poll() is not None or time.monotonic() > end:
                log = self.log.read_text(encoding="utf-8", errors="replace")
                raise StartFailed(f"{lane} is not ready; the log ends with:\n{log[-2000:]}")
            time.sleep(0.1)


def _table(lane: Lane, scratch: Path) -> str:
    python = sys.executable
    if lane.core is not None and can_pin():
        # A worker has no flag for it: its interpreter is started on the core.
        wrapper = scratch / f"python-{lane.name}"
        pinned = f"os.sched_setaffinity(0, [{lane.core}])"
        program = f"import os, sys; {pinned}; os.execv(sys.argv[1], sys.argv[1:])"
        words = [sys.executable, "-c", program, sys.executable]
        wrapper.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
        wrapper.chmod(0o700)
        python = str(wrapper)
    lines = [
        f"name = {json.dumps(lane.name)}",
        f"python = {json.dumps(python)}",
        f"args = {json.dumps(lane.args)}",
        lane.settings,
    ]
    return "\n".join([*lines, ""])

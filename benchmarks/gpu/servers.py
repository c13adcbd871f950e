"""The two servers: started, waited for, and ended with all that they started."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from benchmarks.gpu.connection import Address, get_json
from benchmarks.worker.against_upstream import free_port

ROOT = Path(__file__).resolve().parents[2]
_LOOK_EVERY = 0.02
_ACCESS = '"target":"omni_jev::access"'
"""In the frontend's line about one request."""


class StartFailed(Exception):
    """A server did not become ready; says why."""


class Server:
    """A process that ends with the block."""

    name = ""
    grace = 15.0
    """Seconds that it has for a gentle end."""

    def __init__(
        self, command: Sequence[str | Path], env: Mapping[str, str], scratch: Path, log: Path
    ) -> None:
        self.command = [str(part) for part in command]
        self.log = log
        self._started = time.monotonic()
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                self.command, cwd=scratch, env=dict(env), stdout=output, stderr=subprocess.STDOUT
            )

    @property
    def address(self) -> Address | None:
        """Where it listens, once that is known."""
        raise NotImplementedError

    def until_ready(self, seconds: float) -> float:
        """Wait for the first 200 of `/health`; the seconds from the start. Raises `StartFailed`."""
        while (waited := time.monotonic() - self._started) < seconds:
            if self.process.poll() is not None:
                raise StartFailed(f"{self.name} exited with {self.process.returncode}{self._end()}")
            address = self.address
            if address is not None:
                with contextlib.suppress(OSError):
                    if get_json(address, "/health")[0] == 200:
                        return time.monotonic() - self._started
            time.sleep(_LOOK_EVERY)
        raise StartFailed(f"{self.name} was not ready after {waited:.0f} s{self._end()}")

    def health(self) -> dict[str, Any]:
        """Ask for `/health`."""
        address = self.address
        if address is None:
            raise StartFailed(f"{self.name} does not listen")
        shown = get_json(address, "/health")[1]
        return dict(shown) if isinstance(shown, dict) else {}

    def events(self) -> Iterator[dict[str, Any]]:
        """Give the lines of its log so far that are JSON objects."""
        for line in self.log.read_text(encoding="utf-8", errors="replace").splitlines():
            with contextlib.suppress(ValueError):
                event = json.loads(line)
                if isinstance(event, dict):
                    yield event

    def _end(self) -> str:
        lines = self.log.read_text(errors="replace").strip().splitlines()
        told = [line for line in lines if line.strip() and _ACCESS not in line]
        return f": {told[-1].strip()[-400:]}" if told else ""

    def stop(self) -> None:
        """End it, gently at first."""
        self.process.terminate()
        try:
            self.process.wait(timeout=self.grace)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()


class Upstream(Server):
    """`laya.serve` on one checkpoint folder."""

    name = "upstream"

    def __init__(self, folder: Path, device: str, scratch: Path, log: Path) -> None:
        """Start it."""
        self._port = free_port()
        program = ROOT / "benchmarks" / "worker" / "upstream.py"
        command = [sys.executable, str(program), str(folder), str(self._port), device]
        super().__init__(command, environment(scratch), scratch, log)

    @property
    def address(self) -> Address:
        """Where it listens."""
        return ("127.0.0.1", self._port)

    def stop(self) -> None:
        """End it at once: it would first work through all that it could not answer in time."""
        self.process.kill()
        self.process.wait()


class Frontend(Server):
    """The binary, whose log is JSON and says where it listens."""

    name = "omni-jev"
    _address: tuple[str, int] | None = None

    @property
    def address(self) -> tuple[str, int] | None:
        """Where the frontend listens, as its log says."""
        if self._address is None:
            for event in self.events():
                if event.get("message") == "listening" and event.get("listener") == "frontend":
                    host, _, port = str(event["address"]).rpartition(":")
                    self._address = (host, int(port))
        return self._address


class OmniJev(Frontend):
    """The binary with its supervised worker, or before a backend."""

    def __init__(
        self,
        binary: Path,
        flags: Sequence[str],
        scratch: Path,
        log: Path,
        backend: str | None = None,
    ) -> None:
        """Start it; `flags` are the worker's. With a backend's URL it supervises none."""
        self._scratch = scratch
        env = environment(scratch) | {
            "OMNI_JEV_BIND": "127.0.0.1:0",
            "OMNI_JEV_ADMIN_BIND": "off",
            "OMNI_JEV_LOG_FORMAT": "json",
        }
        if backend is None:
            env |= {
                "OMNI_JEV_WORKER_PYTHON": sys.executable,
                "OMNI_JEV_WORKER_START_DEADLINE": "15m",
                # A start that fails is told at once, not tried again.
                "OMNI_JEV_WORKER_MAX_FAILURES": "1",
            }
        else:
            env["OMNI_JEV_BACKEND_URL"] = backend
        more = ["--", *flags] if backend is None else []
        super().__init__([binary.resolve(), *more], env, scratch, log)

    def stop(self) -> None:
        """End it, and keep its log without a line for each request, which would be megabytes."""
        super().stop()
        lines = self.log.read_text(errors="replace").splitlines(keepends=True)
        self.log.write_text("".join(line for line in lines if _ACCESS not in line))

    def worker_address(self) -> str:
        """The worker's own socket, which only this user can reach. Raises `StartFailed`."""
        for path in self._scratch.rglob("*"):
            if stat.S_ISSOCK(path.stat().st_mode):
                with contextlib.suppress(OSError, ValueError):
                    status, shown = get_json(str(path), "/health")
                    if status == 200 and "instance" in shown:
                        return str(path)
        raise StartFailed("the worker's socket was not found")


def environment(scratch: Path) -> dict[str, str]:
    """Give this process's own without settings of the servers, and nothing cached beside them.

    Compilers keep what they made under `TMPDIR` unless told otherwise, and each start has its own.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("OMNI_JEV_", "LAYA_", "TORCHINDUCTOR_", "TRITON_CACHE"))
    }
    source = str(ROOT / "worker-py" / "src")
    path = os.environ.get("PYTHONPATH")
    return kept | {
        "PYTHONPATH": f"{source}{os.pathsep}{path}" if path else source,
        "HF_HUB_OFFLINE": "1",
        "XDG_RUNTIME_DIR": str(scratch),
        "TMPDIR": str(scratch),
    }

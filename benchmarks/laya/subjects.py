"""What is measured: servers that are started here, or run already, by the name of a configuration.

| | |
| --- | --- |
| C1, C2 | laya in process, on the CPU or the device (`bench_inproc.py` alone) |
| C3 | upstream's server, or any that `--spawn` starts |
| C4 | the same behind the frontend |
| C3w, C3o | this project's worker by itself, without and with its options |
| C5 | the frontend with the worker that it supervises |

A side of a comparison is one of C3 to C5, the URL of a running server, or the worker's flags.
"""

from __future__ import annotations

import contextlib
import shlex
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from benchmarks.gpu.connection import Address, Secure, get_json
from benchmarks.gpu.servers import OmniJev, Server, Upstream, environment
from benchmarks.worker.against_upstream import free_port

CONFIGS: Final = ("C3", "C4", "C3w", "C3o", "C5")
DECISIONS: Final = "/v1/systemone"


class Worker(Server):
    """This project's worker by itself."""

    name = "the worker"

    def __init__(
        self,
        flags: Sequence[str],
        scratch: Path,
        log: Path,
        program: Sequence[str] = ("-m", "omni_jev_worker"),
    ) -> None:
        """Start it on a port of its own choice; `program` is what Python runs."""
        self._address: Address | None = None
        command = [sys.executable, *program, *flags, "--port", "0"]
        super().__init__(command, environment(scratch), scratch, log)

    @property
    def address(self) -> Address | None:
        """Where it listens, as its log says once it is ready."""
        if self._address is None:
            for event in self.events():
                if event.get("phase") == "ready" and event.get("port"):
                    self._address = ("127.0.0.1", int(event["port"]))
        return self._address


class Spawned(Server):
    """Any server, by its command; `{port}` in it, and `LAYA_PORT`, are the port that it takes."""

    def __init__(self, command: str, url: str | None, scratch: Path, log: Path) -> None:
        """Start it; with a URL that is where it listens, whatever it was told."""
        port = free_port()
        self._address = locate(url)[0] if url else ("127.0.0.1", port)
        parts = shlex.split(command.replace("{port}", str(port)))
        self.name = Path(parts[0]).name
        own = {"LAYA_PORT": str(port), "LAYA_HOST": "127.0.0.1"}
        # A path is relative to where the person is, not to the server's folder.
        parts[0] = str(Path(parts[0]).absolute()) if "/" in parts[0] else parts[0]
        super().__init__(parts, environment(scratch) | own, scratch, log)

    @property
    def address(self) -> Address:
        """Where it is asked."""
        return self._address


def locate(url: str) -> tuple[Address, str]:
    """Give where a URL's server listens, and the path of its decisions. Raises `ValueError`."""
    if url.startswith("unix:"):
        return url.removeprefix("unix:"), DECISIONS
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query:
        raise ValueError(
            "a URL is http[s]://HOST[:PORT][/PREFIX] or unix:/PATH; its key is LAYA_API_KEY"
        )
    path = parts.path.rstrip("/")
    path = path if path.endswith(DECISIONS) else path + DECISIONS
    if parts.scheme == "https":
        return Secure(parts.hostname, parts.port or 443), path
    return (parts.hostname, parts.port or 80), path


@dataclass
class Subject:
    """A server that answers."""

    name: str
    address: Address
    path: str = DECISIONS
    ready_s: float | None = None
    """From its start to its first 200 of `/health`; none where it ran already."""
    servers: list[Server] = field(default_factory=list)
    """All that was started for it."""

    @property
    def host(self) -> str:
        """What a request names as its host."""
        return "bench" if isinstance(self.address, str) else f"{self.address[0]}:{self.address[1]}"

    @property
    def roots(self) -> list[int]:
        """The processes that were started for it."""
        return [server.process.pid for server in self.servers]

    def health(self) -> dict[str, Any]:
        """Ask for `/health`; empty where there is none."""
        with contextlib.suppress(OSError):
            status, shown = get_json(self.address, "/health")
            if status == 200 and isinstance(shown, dict):
                return shown
        return {}

    @property
    def command(self) -> list[list[str]]:
        """The command lines that started it."""
        return [server.command for server in self.servers]


@dataclass
class Starter:
    """Starts subjects; all of them end with its stack."""

    stack: ExitStack
    scratch: Path
    logs: Path
    device: str
    checkpoint: Path
    """A folder in Laya's format."""
    binary: Path
    flags: Sequence[str] = ()
    """Of every worker of ours."""
    options: Sequence[str] = ()
    """What C3o adds."""
    spawn: str | None = None
    """The command of C3's and C4's server, where that is not upstream's."""
    url: str | None = None
    """Where that listens."""
    patience: float = 600.0
    """Seconds that a start may take."""
    _made: int = 0

    def side(self, text: str) -> Subject:
        """Start, or find, a side of a comparison. Raises `StartFailed` and `ValueError`."""
        if text in CONFIGS:
            return self.config(text)
        if text.startswith(("http://", "https://", "unix:")):
            address, path = locate(text)
            return Subject(text, address, path)
        return self.worker(shlex.split(text), text or "no flags")

    def config(self, name: str) -> Subject:
        """Start what a configuration names. Raises `StartFailed`."""
        if name == "C5":
            flags = [*self._worker_flags(), *self.flags]
            server = OmniJev(self.binary, flags, self._folder(), self._log(name))
            return self._subject(name, server)
        if name in ("C3w", "C3o"):
            return self.worker(self.options if name == "C3o" else [], name)
        if name not in CONFIGS:
            raise ValueError(f"no configuration {name}; there are {', '.join(CONFIGS)}")
        behind = self._subject("C3", self._upstream())
        return behind if name == "C3" else self.frontend(behind, name)

    def worker(
        self, more: Sequence[str], name: str, program: Sequence[str] = ("-m", "omni_jev_worker")
    ) -> Subject:
        """Start a worker by itself with more flags. Raises `StartFailed`."""
        flags = [*self._worker_flags(), *self.flags, *more]
        return self._subject(name, Worker(flags, self._folder(), self._log("worker"), program))

    def frontend(self, behind: Subject, name: str) -> Subject:
        """Start the frontend before a server. Raises `StartFailed`."""
        if isinstance(behind.address, str):
            url = f"unix:{behind.address}"
        else:
            host, port = behind.address
            scheme = "https" if isinstance(behind.address, Secure) else "http"
            url = f"{scheme}://{host}:{port}{behind.path.removesuffix(DECISIONS)}"
        server = OmniJev(self.binary, [], self._folder(), self._log("frontend"), backend=url)
        made = self._subject(name, server)
        if behind.ready_s is not None and made.ready_s is not None:
            made.ready_s += behind.ready_s
        made.servers = [*behind.servers, *made.servers]
        return made

    def _upstream(self) -> Server:
        if self.spawn is not None:
            return Spawned(self.spawn, self.url, self._folder(), self._log("spawned"))
        return Upstream(self.checkpoint, self.device, self._folder(), self._log("upstream"))

    def _worker_flags(self) -> list[str]:
        return ["--device", self.device, "--require-device", "--model", str(self.checkpoint)]

    def _subject(self, name: str, server: Server) -> Subject:
        self.stack.enter_context(server)
        ready = server.until_ready(self.patience)
        address = server.address
        if address is None:
            raise RuntimeError(f"{name} does not listen")
        path = locate(self.url)[1] if self.url and isinstance(server, Spawned) else DECISIONS
        return Subject(name, address, path, ready, [server])

    def _folder(self) -> Path:
        """Make a folder with a short path: those of sockets end at some 104 bytes."""
        self._made += 1
        made = self.scratch / str(self._made)
        made.mkdir()
        return made

    def _log(self, name: str) -> Path:
        self.logs.mkdir(parents=True, exist_ok=True)
        return self.logs / f"{name}-{self._made}.log"

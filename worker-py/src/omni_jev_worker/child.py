"""A worker process that this one started, for one checkpoint beside the default.

It is a whole worker, on a Unix socket in a private folder: it has an interpreter and a torch of its
own, so nothing that it does (import, download, load, compile, run) holds up the requests to the
default checkpoint, and its end harms none. It ends when this process does, however that ends.
"""

import asyncio
import contextlib
import json
import os
import signal
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx2

from omni_jev_worker import log

# Longer lines than this are cut up by the reader and logged as they come.
_LINE_BYTES: Final = 1024 * 1024
# What a child may log without a word of progress, as the supervisor gives this process.
_SILENT_SECONDS: Final = 600.0
_HEALTH_SECONDS: Final = 5.0
_STOP_SECONDS: Final = 15.0

# Phases that come after the files of the checkpoint were found.
_FOUND: Final = ("import", "load", "compile", "warmup", "parity", "ready")


class NotStarted(Exception):
    """The process ended, or was ended, before it was ready; its text says why, in one line.

    ``code`` is its exit code, if it ended by itself; ``kind`` that of the `Refusal` it ended with,
    if it was one with a kind.
    """

    def __init__(self, reason: str, code: int | None = None, kind: str | None = None) -> None:
        super().__init__(reason)
        self.code = code
        self.kind = kind


@dataclass(frozen=True, slots=True)
class Answer:
    """What a child answered."""

    status: int
    body: Any
    retry_after: str | None


class Child:
    """One process. Made and used on the event loop alone."""

    def __init__(self, name: str, command: Sequence[str], socket: Path) -> None:
        """Take the checkpoint's name, and the command that serves it on that socket."""
        self.name = name
        self._command = command
        self._socket = socket
        self._token = uuid.uuid4().hex
        self._process: asyncio.subprocess.Process | None = None
        self._client: httpx2.AsyncClient | None = None
        self._reader: asyncio.Task[None] | None = None
        self._spoke = asyncio.Event()
        self._ready = asyncio.Event()
        self._last_error: tuple[str, str | None] = ("it said nothing", None)
        self.health: dict[str, Any] = {}
        """The latest body of its `/health`."""
        self.ended = asyncio.Event()
        """Set when the process is gone."""

    async def start(self, on_found: Callable[[], None]) -> None:
        """Start the process and wait until it is ready. Raises `NotStarted`.

        ``on_found`` is called once the files of the checkpoint are there.
        """
        self._process = await asyncio.create_subprocess_exec(
            *self._command,
            "--uds",
            str(self._socket),
            env=self._environment(),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            limit=_LINE_BYTES,
        )
        self._reader = asyncio.ensure_future(self._read(self._process, on_found))
        await self._wait_until_ready()
        self._client = httpx2.AsyncClient(
            transport=httpx2.AsyncHTTPTransport(
                uds=str(self._socket), limits=httpx2.Limits(max_connections=None)
            ),
            base_url="http://checkpoint",
            timeout=None,
            trust_env=False,
        )
        await self.look()

    def _environment(self) -> dict[str, str]:
        # Only this process asks it anything: it needs no key, and none of it is news.
        kept = {k: value for k, value in os.environ.items() if not k.startswith("LAYA_")}
        return kept | {
            "OMNI_JEV_LIFELINE": "stdin",
            "OMNI_JEV_SUPERVISOR_PID": str(os.getpid()),
            "OMNI_JEV_INSTANCE": uuid.uuid4().hex,
            "OMNI_JEV_CONTROL_TOKEN": self._token,
        }

    async def _wait_until_ready(self) -> None:
        ready = asyncio.ensure_future(self._ready.wait())
        ended = asyncio.ensure_future(self.ended.wait())
        try:
            while True:
                self._spoke.clear()
                spoke = asyncio.ensure_future(self._spoke.wait())
                done, _ = await asyncio.wait(
                    {ready, ended, spoke}, timeout=_SILENT_SECONDS, return_when="FIRST_COMPLETED"
                )
                spoke.cancel()
                if ended in done:
                    reason, kind = self._last_error
                    raise NotStarted(reason, self._code, kind)
                if ready in done:
                    return
                if not done:
                    raise NotStarted(f"it made no progress for {_SILENT_SECONDS:.0f} s")
        except BaseException:
            self.kill()
            raise
        finally:
            ready.cancel()
            ended.cancel()

    async def _read(
        self, process: asyncio.subprocess.Process, on_found: Callable[[], None]
    ) -> None:
        """Pass on what the process logs, until it ends."""
        if process.stderr is None:
            raise RuntimeError("the process was started without a pipe")
        found = False
        while True:
            try:
                line = await process.stderr.readline()
            except ValueError:
                # Over the limit; the reader has dropped what it had of it.
                continue
            if not line:
                break
            phase = self._relay(line)
            self._spoke.set()
            if phase in _FOUND and not found:
                found = True
                on_found()
            if phase == "ready":
                self._ready.set()
        await process.wait()
        if self._client is not None:
            await self._client.aclose()
        self.ended.set()

    def _relay(self, line: bytes) -> str | None:
        """Log a line as this process's own; give its phase."""
        text = line.decode("utf-8", "replace").strip()
        try:
            said = json.loads(text)
            level, message = str(said.pop("level")), str(said.pop("message"))
        except (ValueError, KeyError, TypeError, AttributeError):
            log.warning(text, model=self.name)
            return None
        phase = said.pop("phase", None)
        kind = said.pop("kind", None)
        if level == "error":
            self._last_error = (message, kind)
        # Until it is ready this process prepares it, which whoever watches must know.
        mine = {} if self._ready.is_set() else {"phase": "preparing", "step": phase}
        log.relay(level, message, **{**said, **mine, "model": self.name, "child": self.pid})
        return phase if isinstance(phase, str) else None

    @property
    def pid(self) -> int | None:
        """The process's number; none before it was started."""
        return None if self._process is None else self._process.pid

    @property
    def _code(self) -> int | None:
        return None if self._process is None else self._process.returncode

    async def ask(self, body: bytes) -> Answer:
        """Have a request answered, a JSON body of `/v1/systemone`.

        Raises `httpx2.HTTPError` when the process ends meanwhile.
        """
        return await self._post("/v1/systemone", body)

    async def recover_device(self) -> str | None:
        """Return to the device that was lost: none when it is there, else why not."""
        answer = await self._post("/control/recover-device", b"")
        return None if answer.body.get("recovered") else str(answer.body.get("reason"))

    async def _post(self, path: str, body: bytes) -> Answer:
        if self._client is None:
            raise RuntimeError("the process is not ready")
        response = await self._client.post(
            path, content=body, headers={"x-omni-jev-control": self._token}
        )
        return Answer(
            response.status_code, json.loads(response.content), response.headers.get("retry-after")
        )

    async def look(self) -> bool:
        """Read its `/health`, and say whether it answered; if not, what it last said stays."""
        if self._client is None:
            return False
        try:
            response = await self._client.get("/health", timeout=_HEALTH_SECONDS)
            self.health = json.loads(response.content)
        except (httpx2.HTTPError, ValueError):
            return False
        return True

    async def stop(self) -> None:
        """Ask the process to end; end it if it does not in time."""
        self._signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                await self.ended.wait()
        except TimeoutError:
            self.kill()
            await self.ended.wait()

    def kill(self) -> None:
        """End the process now."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

"""A process that this one started: its log becomes ours, and it ends when this process does."""

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from omni_jev_worker import log

# Longer lines than this are cut up by the reader and logged as they come.
_LINE_BYTES: Final = 1024 * 1024
# What a child may log without a word of progress, as the supervisor gives this process.
_SILENT_SECONDS: Final = 600.0
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


def _nothing() -> None:
    pass


class ChildProcess:
    """One process. Made and used on the event loop alone."""

    def __init__(self, name: str, command: Sequence[str]) -> None:
        """Take the checkpoint's name, and the command."""
        self.name = name
        self._command = command
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self._spoke = asyncio.Event()
        self._ready = asyncio.Event()
        self._last_error: tuple[str, str | None] = ("it said nothing", None)
        self.ended = asyncio.Event()
        """Set when the process is gone."""

    async def launch(
        self,
        environment: Mapping[str, str],
        *,
        inherited: Sequence[int] = (),
        on_found: Callable[[], None] = _nothing,
    ) -> None:
        """Start the process and wait until it is ready. Raises `NotStarted`.

        ``inherited`` are files that it gets besides the usual three; ``on_found`` is called once
        the files of the checkpoint are there.
        """
        self._process = await asyncio.create_subprocess_exec(
            *self._command,
            env={
                **environment,
                "OMNI_JEV_LIFELINE": "stdin",
                "OMNI_JEV_SUPERVISOR_PID": str(os.getpid()),
            },
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            pass_fds=inherited,
            limit=_LINE_BYTES,
        )
        self._reader = asyncio.ensure_future(self._read(self._process, on_found))
        await self._wait_until_ready()

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
                    raise NotStarted(reason, self.code, kind)
                if ready in done:
                    return
                if not done:
                    raise NotStarted(f"it made no progress for {_SILENT_SECONDS:.0f} s")
        except BaseException:
            self.kill()
            # It is not left behind for a loop that may end at once.
            await self.ended.wait()
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
        await self.on_end()
        self.ended.set()

    async def on_end(self) -> None:
        """Let go of what was held for the process."""

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
    def code(self) -> int | None:
        """Its exit code; none while it runs."""
        return None if self._process is None else self._process.returncode

    async def stop(self, patience: float = _STOP_SECONDS) -> None:
        """Ask the process to end; end it if it does not in so many seconds."""
        self.ask_to_stop()
        if self._process is None:
            return
        try:
            async with asyncio.timeout(patience):
                await self.ended.wait()
        except TimeoutError:
            self.kill()
            await self.ended.wait()

    def ask_to_stop(self) -> None:
        """Ask the process to end when it has answered what it was asked."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """End the process now."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

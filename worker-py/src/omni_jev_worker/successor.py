"""A second worker that compiles while this one serves, and then takes over its socket.

It is this worker's own command, in a process of its own, so that compiling slows no answer down. It
inherits the socket that this one listens on, and begins to take connections from it when it is
compiled, proven and warm. This one takes no more from then on, answers what it has, closes each
connection with its next answer, and stays as the other's parent: asked to stop, it has it stop, and
it ends when the other does, so that whoever watches this process watches both.
"""

import asyncio
import contextlib
import os
import socket
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from omni_jev_worker import log
from omni_jev_worker.child_process import ChildProcess, NotStarted
from omni_jev_worker.contradictions import IN_BACKGROUND
from omni_jev_worker.exits import FAILED
from omni_jev_worker.sockets import LISTENER

_MORE_SECONDS: Final = 5.0

PREPARING: Final = "preparing"
SERVING: Final = "serving"
FAILED_TO: Final = "failed"


class Successor(ChildProcess):
    """The other process. Used on the event loop alone."""

    def __init__(
        self,
        argv: Sequence[str],
        listener: socket.socket,
        *,
        instance: str,
        take_over: Callable[[], Awaitable[None]],
        until_answered: Callable[[], Awaitable[None]],
        drain_timeout: float,
    ) -> None:
        """Take this worker's flags, its socket and name, and what to do when the other serves.

        ``until_answered`` waits for the answers that this one owes; ``drain_timeout`` is the
        seconds that it takes at most to answer what it has when it stops.
        """
        kept = [word for word in argv if word != IN_BACKGROUND]
        # Uncompiled, or with other answers, it would be no better than this one.
        insisting = ["--require-compile", "--require-parity"]
        super().__init__("successor", [sys.executable, "-m", "omni_jev_worker", *kept, *insisting])
        self._listener = listener
        self._instance = instance
        self._take_over = take_over
        self._until_answered = until_answered
        self._drain_timeout = drain_timeout
        self._patience = drain_timeout + _MORE_SECONDS
        self._leaving = False
        self._task: asyncio.Task[None] | None = None
        self.state = PREPARING
        """`PREPARING`, `SERVING` or `FAILED_TO`."""
        self.reason: str | None = None
        """Why it will not serve."""

    def begin(self) -> None:
        """Start it, beside everything else."""
        self._task = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        number = self._listener.fileno()
        try:
            # The same name: to whoever asks it is the same worker.
            named = {LISTENER: str(number), "OMNI_JEV_INSTANCE": self._instance}
            await self.launch({**os.environ, **named}, inherited=(number,))
        except (NotStarted, OSError) as fault:
            self.state, self.reason = FAILED_TO, str(fault)
            log.warning(f"{IN_BACKGROUND}: the model stays uncompiled: {fault}", phase="compile")
            return
        self.state = SERVING
        log.info(f"the compiled model serves from now on, in process {self.pid}", phase="ready")
        # A client may keep its connection to this process for long: the other's end matters more.
        taking_over = asyncio.ensure_future(self._take_over())
        await self.ended.wait()
        if self._leaving:
            return
        log.error(f"the compiled model's process ended: exit code {self.code}")
        taking_over.cancel()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._drain_timeout):
                await self._until_answered()
        # Nobody takes new connections: a new start is the cure.
        os._exit(FAILED)

    def ask_to_stop(self) -> None:
        """Ask it to end when it has answered what it was asked."""
        self._leaving = True
        super().ask_to_stop()

    async def close(self) -> None:
        """Have it stop, and wait for that."""
        self._leaving = True
        if self._task is not None and self.state == PREPARING:
            self._task.cancel()
        await self.stop(self._patience)

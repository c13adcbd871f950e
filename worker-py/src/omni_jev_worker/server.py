"""Uvicorn and signals: says when it listens, and stops within a budget."""

import asyncio
import contextlib
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final, cast

import uvicorn
import uvloop

from omni_jev_worker.connection import Connection
from omni_jev_worker.http import Application

# Longer than the frontend keeps an idle connection, so that it never sends into one being closed.
_KEEP_ALIVE_SECONDS: Final = 75
_LOOK_SECONDS: Final = 0.5

# How long a thread that has Python's lock keeps it from others, a tenth of the usual. A pass lets
# go of the lock and takes it back a dozen times; each time it would wait so long for an event loop
# that has thousands of requests to read.
_SWITCH_SECONDS: Final = 0.0005


async def _nothing() -> None:
    pass


class Server(uvicorn.Server):
    """Uvicorn with our own signals, and a call when it listens."""

    def __init__(
        self,
        app: Application,
        *,
        drain_timeout: float,
        on_listening: Callable[[], None],
        on_stop: Callable[[], None],
        before: Callable[[], Awaitable[None]] = _nothing,
        after: Callable[[], Awaitable[None]] = _nothing,
    ) -> None:
        """Take what to run on the loop before it listens, and after the last answer."""
        config = uvicorn.Config(
            cast("Any", app),
            http=Connection,
            loop="uvloop",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=cast("int", drain_timeout),
        )
        super().__init__(config)
        self._on_listening = on_listening
        self._on_stop = on_stop
        self._before = before
        self._after = after

    def run_on(self, listener: socket.socket) -> None:
        """Serve until SIGTERM or SIGINT, then until the last answer or the end of the budget."""
        sys.setswitchinterval(_SWITCH_SECONDS)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._serve_on(listener))

    async def _serve_on(self, listener: socket.socket) -> None:
        try:
            await self._before()
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, self._stop)
            await self.serve(sockets=[listener])
        finally:
            await self._after()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start listening, then say so."""
        await super().startup(sockets)
        self._on_listening()

    def take_no_more(self) -> None:
        """Leave new connections to another process that listens on the same socket."""
        for server in self.servers:
            server.close()

    async def until_left(self) -> None:
        """Wait until the last connection is closed."""
        while self.server_state.connections:
            await asyncio.sleep(_LOOK_SECONDS)

    async def until_answered(self) -> None:
        """Wait until no request is under way."""
        while self.server_state.tasks:
            await asyncio.wait(set(self.server_state.tasks))

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to us: uvicorn raises them again at its end, which ends in no exit 0."""
        yield

    def _stop(self) -> None:
        if self.should_exit:
            # Asked twice: whoever asks does not want to wait.
            self.force_exit = True
            return
        self.should_exit = True
        self._on_stop()

"""Uvicorn and signals: says when it listens, and stops within a budget."""

import asyncio
import contextlib
import signal
import socket
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final, cast

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from omni_jev_worker.envelope import ID_HEADERS, request_id
from omni_jev_worker.protocol import problems, render

# Longer than the frontend keeps an idle connection, so that it never sends into one being closed.
_KEEP_ALIVE_SECONDS: Final = 75
_MAX_HEADER_BYTES: Final = 64 * 1024


class _Protocol(H11Protocol):
    """Uvicorn's protocol, but what it refuses itself has the clients' error shape and its ids."""

    def send_400_response(self, msg: str) -> None:
        """Answer bytes that are no HTTP, and close."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            # An answer is under way: nothing more can be said.
            self.transport.close()
            return
        # The headers of a request whose body is broken; none where its head is.
        headers = self.headers if self.conn.our_state is h11.SEND_RESPONSE else None
        identity = request_id(headers or ())
        problem = problems.refused(400, problems.INVALID_REQUEST, msg)
        body = render.to_json(problem.body)
        answer = h11.Response(
            status_code=problem.status,
            headers=[
                (b"content-type", b"application/json"),
                (b"content-length", str(len(body)).encode()),
                (b"connection", b"close"),
                *((name, identity) for name in ID_HEADERS),
            ],
            reason=b"Bad Request",
        )
        for event in (answer, h11.Data(data=body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        if headers is not None:
            # The application still waits for the rest of the body, and must not answer as well.
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.close()


async def _nothing() -> None:
    pass


class Server(uvicorn.Server):
    """Uvicorn with our own signals, and a call when it listens."""

    def __init__(
        self,
        app: ASGIApp,
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
            http=_Protocol,
            loop="asyncio",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=cast("int", drain_timeout),
            h11_max_incomplete_event_size=_MAX_HEADER_BYTES,
        )
        super().__init__(config)
        self._on_listening = on_listening
        self._on_stop = on_stop
        self._before = before
        self._after = after

    def run_on(self, listener: socket.socket) -> None:
        """Serve until SIGTERM or SIGINT, then until the last answer or the end of the budget."""
        asyncio.run(self._serve_on(listener))

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

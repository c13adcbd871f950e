"""One client's connection: uvicorn's HTTP/1.1 on llhttp, as strict as a server of JSON needs it.

What is refused before the application sees it has the clients' error shape and its ids, no part of
a request is kept without a bound, and an answer is one write.
"""

import asyncio
from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import unquote

import httptools
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from omni_jev_worker.envelope import ID_HEADERS, request_id
from omni_jev_worker.protocol import problems, render

# Of a head, a trailer or a chunk's line, before its end.
_MAX_UNREAD_BYTES: Final = 64 * 1024
_NOT_HTTP: Final = "Invalid HTTP request received."


class Connection(HttpToolsProtocol):
    """Uvicorn's protocol, with bounds, and with what it refuses itself in the clients' shape."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._in_head = False
        self._heard = False
        self._unread = 0
        self._refused = False
        self._framing = b""
        self._repeated = False

    def data_received(self, data: bytes) -> None:
        """Read on. What is no HTTP is refused, and more that says nothing than the bound."""
        self._unset_keepalive_if_required()
        self._heard = False
        size = len(data)
        try:
            while data:
                data = self._feed(data)
        except httptools.HttpParserError:
            self.send_400_response(_NOT_HTTP)
            return
        # llhttp keeps a header until it is whole.
        self._unread = 0 if self._heard else self._unread + size
        if self._unread > _MAX_UNREAD_BYTES and not self.transport.is_closing():
            self.send_400_response(_NOT_HTTP)

    def _feed(self, data: bytes) -> bytes:
        """Have llhttp read; give what it leaves, which is to be read next."""
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as wish:
            # It stops behind the head of a request that wishes for another protocol. There is no
            # other: the body and what comes after it are read as ever.
            framing, self._framing = self._framing, b""
            return framing + data[wish.args[0] :]
        return b""

    def on_message_begin(self) -> None:
        """Begin a request."""
        if self._repeated:
            return
        self._in_head = True
        self.url = b""
        self.expect_100_continue = False
        self.headers = []

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; one that comes after the body is not used."""
        if not self._in_head:
            return
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Hand the request to the application, or have it wait for the one before."""
        self._heard = True
        if self._repeated:
            self._repeated = False
            return
        version = self.parser.get_http_version()
        _check(self.headers, version)
        raw_path, _, query = self.url.partition(b"?")
        path = raw_path.decode("ascii")
        self._in_head = False
        self.scope = {
            "type": "http",
            "asgi": {"version": self.asgi_version, "spec_version": "2.3"},
            "http_version": version,
            "server": self.server,
            "client": self.client,
            "scheme": "http",
            "method": self.parser.get_method().decode("ascii"),
            "root_path": "",
            "path": unquote(path) if "%" in path else path,
            "raw_path": raw_path,
            "query_string": query,
            "headers": self.headers,
            "state": {},
        }
        before = self.cycle
        self.cycle = _Cycle(
            scope=self.scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=False,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=self.expect_100_continue,
            keep_alive=version != "1.0" and self.parser.should_keep_alive(),
            on_response=self.on_response_complete,
        )
        if before is None or before.response_complete:
            self._start_asgi_task(self.cycle, self.app)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((self.cycle, self.app))

    def on_body(self, body: bytes) -> None:
        """Take a part of the body."""
        self._heard = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End a request, but for a body that llhttp has taken for another protocol."""
        self._heard = True
        if self.parser.should_upgrade() and (framing := _framing(self.headers)):
            self._framing, self._repeated = b"POST / HTTP/1.1\r\n" + framing, True
            return
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Go on with what has waited for the answer."""
        super().on_response_complete()
        if self._refused and not self.transport.is_closing():
            self.send_400_response(_NOT_HTTP)

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002
        """Answer bytes that are no HTTP, and close: after the answers that are under way."""
        cycle = None if self._in_head else self.cycle
        if self.cycle is None or self.cycle.response_complete:
            if cycle is not None and cycle.more_body:
                # Its answer has been sent already: nothing more can be said.
                self.transport.close()
                return
            self._refuse(())
        elif cycle is not None and cycle.more_body and not self.pipeline:
            if cycle.response_started:
                self.transport.close()
                return
            # The request whose body is broken: the application waits for the rest of it, and must
            # not answer as well.
            cycle.disconnected = True
            cycle.message_event.set()
            self._refuse(self.headers)
        else:
            self._refused = True
            self.flow.pause_reading()

    def _refuse(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        identity = request_id(headers)
        problem = problems.refused(400, problems.INVALID_REQUEST, _NOT_HTTP)
        body = render.to_json(problem.body)
        head = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
            *((name, identity) for name in ID_HEADERS),
        ]
        self.transport.write(_head(problem.status, head) + body)
        self.transport.close()


class _Cycle(RequestResponseCycle):
    """One request and its answer, whose head is sent with the beginning of its body."""

    _begun: bytes = b""

    async def send(self, message: Any) -> None:
        """Send the application's answer, which is one body of a known length."""
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            return
        if message["type"] == "http.response.start":
            self.response_started = True
            self.waiting_for_100_continue = False
            headers = [*self.default_headers, *message["headers"]]
            if (b"connection", b"close") in headers:
                self.keep_alive = False
            elif not self.keep_alive:
                headers.append((b"connection", b"close"))
            self._begun = _head(message["status"], headers)
            return
        body = b"" if self.scope["method"] == "HEAD" else message["body"]
        self.transport.write(self._begun + body)
        self.response_complete = True
        self.message_event.set()
        if not self.keep_alive:
            self.transport.close()
        self.on_response()


def _head(status: int, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    lines = [b"%b: %b\r\n" % pair for pair in headers]
    return b"".join([STATUS_LINE[status], *lines, b"\r\n"])


def _framing(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Give the end of a head that has the same body; empty if there is none."""
    for name, value in headers:
        if name in (b"transfer-encoding", b"content-length") and value != b"0":
            return b"%b: %b\r\n\r\n" % (name, value)
    return b""


def _check(headers: list[tuple[bytes, bytes]], version: str) -> None:
    """Refuse what llhttp lets pass. Raises `ValueError`, which it takes for its own refusal."""
    hosts = 0
    for name, value in headers:
        if name == b"host":
            hosts += 1
        elif name == b"transfer-encoding" and value.lower() != b"chunked":
            raise ValueError("a transfer coding that is not known")
    if hosts > 1 or (not hosts and version == "1.1"):
        raise ValueError("not one host")

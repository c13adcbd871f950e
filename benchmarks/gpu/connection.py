"""A client's kept connection, with as little work of its own as can be."""

from __future__ import annotations

import json
import os
import re
import select
import socket
import ssl
from typing import Any, NamedTuple


class Secure(NamedTuple):
    """Host and port of a server behind TLS."""

    host: str
    port: int


Address = tuple[str, int] | Secure | str
"""Host and port, or the path of a Unix socket."""

PATIENCE = 60.0
"""Seconds without a byte after which a server is given up."""

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding: *chunked", re.IGNORECASE)
_CLOSES = re.compile(rb"\r\nconnection: *close", re.IGNORECASE)


class Reply(NamedTuple):
    """A whole answer."""

    status: int
    body: bytes
    closes: bool
    """Whether the server ends the connection with it."""


def post(body: bytes, path: str = "/v1/systemone", host: str = "bench") -> bytes:
    """Give the bytes of a decision's request; the key is `LAYA_API_KEY`, where that is set."""
    head = f"POST {path} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n{_key()}"
    return head.encode() + b"content-length: %d\r\n\r\n" % len(body) + body


def _key() -> str:
    key = os.environ.get("LAYA_API_KEY")
    return f"authorization: Bearer {key}\r\n" if key else ""


def _chunks(buffer: bytes, at: int) -> tuple[bytes, bytes] | None:
    """Give a chunked body that begins at a place, and what follows; none while it is not whole."""
    body = b""
    while (line := buffer.find(b"\r\n", at)) >= 0:
        size = int(buffer[at:line].partition(b";")[0], 16)
        at = line + 2
        if size == 0:
            # After trailers, if any, comes an empty line.
            end = buffer.find(b"\r\n\r\n", line)
            return None if end < 0 else (body, buffer[end + 4 :])
        if len(buffer) < at + size + 2:
            return None
        body += buffer[at : at + size]
        at += size + 2
    return None


class Connection:
    """One HTTP/1.1 connection with at most one request under way."""

    def __init__(self, address: Address) -> None:
        """Connect; raises `OSError`."""
        self._address = address
        self._buffer = b""
        self._socket = self._connect()

    def _connect(self) -> socket.socket:
        if isinstance(self._address, str):
            made = socket.socket(socket.AF_UNIX)
            made.settimeout(PATIENCE)
            made.connect(self._address)
            return made
        made = socket.create_connection(self._address, timeout=PATIENCE)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not isinstance(self._address, Secure):
            return made
        return ssl.create_default_context().wrap_socket(made, server_hostname=self._address.host)

    def fileno(self) -> int:
        """Let `select` wait for it."""
        return self._socket.fileno()

    def send(self, request: bytes) -> None:
        """Send a request's bytes; raises `OSError`."""
        self._socket.sendall(request)

    def receive(self) -> Reply | None:
        """Read what there is, or wait for it; the answer, once it is whole. Raises `OSError`."""
        part = self._socket.recv(262_144)
        if not part:
            raise ConnectionResetError("the server ended the connection")
        # What TLS has read already would wake nobody who waits for the socket.
        while isinstance(self._socket, ssl.SSLSocket) and self._socket.pending():
            part += self._socket.recv(262_144)
        self._buffer += part
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return None
        head = self._buffer[: end + 2]
        length = _LENGTH.search(head)
        if length is not None:
            size = end + 4 + int(length[1])
            if len(self._buffer) < size:
                return None
            body, self._buffer = self._buffer[end + 4 : size], self._buffer[size:]
        elif _CHUNKED.search(head) is not None:
            whole = _chunks(self._buffer, end + 4)
            if whole is None:
                return None
            body, self._buffer = whole
        else:
            raise ConnectionError("an answer of unknown length")
        return Reply(int(head[9:12]), body, _CLOSES.search(head) is not None)

    def exchange(self, request: bytes) -> Reply:
        """Send a request and wait for its answer; raises `OSError`."""
        self.send(request)
        while True:
            reply = self.receive()
            if reply is not None:
                return reply

    def refresh(self) -> None:
        """Connect anew if the server has ended it while it was idle; raises `OSError`."""
        # With no request under way there is nothing to read but the end.
        if select.select([self._socket], [], [], 0)[0]:
            self.reopen()

    def reopen(self) -> None:
        """Connect anew; raises `OSError`."""
        self.close()
        self._buffer = b""
        self._socket = self._connect()

    def close(self) -> None:
        """End it."""
        self._socket.close()


def get_json(address: Address, path: str) -> tuple[int, Any]:
    """Ask for a page on a connection of its own: status, and what it holds. Raises `OSError`."""
    connection = Connection(address)
    try:
        reply = connection.exchange(f"GET {path} HTTP/1.1\r\nhost: bench\r\n\r\n".encode())
    finally:
        connection.close()
    try:
        return reply.status, json.loads(reply.body)
    except ValueError:
        return reply.status, None

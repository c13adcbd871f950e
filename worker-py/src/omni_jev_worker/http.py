"""What the application knows of HTTP: a request, an answer, and a client that has left.

The server calls an application as ASGI has it, with a scope and functions that receive and send.
"""

from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Scope = MutableMapping[str, Any]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]
Header = tuple[bytes, bytes]


class ClientGone(Exception):
    """The client has closed its connection: nobody reads an answer."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request, of which the body is still to be read."""

    headers: Sequence[Header]
    """Names are in lower case."""
    receive: Receive

    def header(self, name: bytes) -> bytes:
        """Give the first line of a header; empty if there is none."""
        for given, value in self.headers:
            if given == name:
                return value
        return b""

    def lines(self, name: bytes) -> list[str]:
        """Give every line of a header."""
        return [value.decode("latin-1") for given, value in self.headers if given == name]

    async def part(self) -> tuple[bytes, bool]:
        """Wait for more of the body; say whether there is more to come. Raises `ClientGone`."""
        message = await self.receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        return message.get("body", b""), message.get("more_body", False)

    async def until_gone(self) -> None:
        """Wait for the client to close its connection, once the body has been read."""
        while (await self.receive())["type"] != "http.disconnect":
            pass


@dataclass(frozen=True, slots=True)
class Response:
    """An answer in JSON."""

    status: int
    body: bytes
    headers: Sequence[Header] = ()

    async def send(self, send: Send) -> None:
        """Send it."""
        headers = [
            (b"content-length", b"%d" % len(self.body)),
            (b"content-type", b"application/json"),
            *self.headers,
        ]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": self.body})

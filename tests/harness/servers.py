"""Small backends and proxies, each on a socket of its own in this process."""

import contextlib
import http.client
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.harness.client import ask

# What a server does with one accepted connection; it ends when the event is set.
Conversation = Callable[[socket.socket, threading.Event], None]


@dataclass(frozen=True)
class Received:
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True)
class Reply:
    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=lambda: {"Content-Type": "application/json"})

    def encoded(self) -> bytes:
        lines = [f"HTTP/1.1 {self.status} Whatever"]
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        lines += [f"Content-Length: {len(self.body)}", "", ""]
        return "\r\n".join(lines).encode("latin-1") + self.body


class Server:
    """Listens while the `with` lasts, on a port of loopback or on a Unix socket."""

    def __init__(self, conversation: Conversation, path: Path | None = None) -> None:
        self._conversation = conversation
        if path is None:
            self._listener = socket.create_server(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
            self.url = f"http://{self.address}"
        else:
            self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._listener.bind(str(path))
            self._listener.listen()
            self.url = f"unix:{path}"
        self.accepted = threading.Event()
        self._stop = threading.Event()
        self._connections: list[socket.socket] = []
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> "Server":
        self._spawn(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        # A shutdown wakes a thread that is blocked on the socket; on a listener macOS refuses it,
        # and there the close does.
        for open_socket in (self._listener, *self._connections):
            with contextlib.suppress(OSError):
                open_socket.shutdown(socket.SHUT_RDWR)
            open_socket.close()
        for thread in self._threads:
            thread.join(10)

    def _spawn(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._stop.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._connections.append(connection)
            self.accepted.set()
            self._spawn(lambda connection=connection: self._talk(connection))  # type: ignore[misc]

    def _talk(self, connection: socket.socket) -> None:
        # The other side may leave at any time: that is its right and no fault of the server's.
        with connection, contextlib.suppress(OSError):
            self._conversation(connection, self._stop)


@contextlib.contextmanager
def refusing_address() -> Iterator[str]:
    """Reserve a port on which nothing listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{bound.getsockname()[1]}"


def read_request(connection: socket.socket) -> Received | None:
    """Read one request with a Content-Length or no body; None when the client is gone."""
    data = b""
    while b"\r\n\r\n" not in data:
        more = connection.recv(65536)
        if not more:
            return None
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    first, *rest = head.decode("latin-1").split("\r\n")
    method, path, _ = first.split(" ")
    pairs = (line.split(":", 1) for line in rest)
    headers = {name.lower(): value.strip() for name, value in pairs}
    length = int(headers.get("content-length", "0"))
    while len(body) < length:
        more = connection.recv(65536)
        if not more:
            return None
        body += more
    return Received(method, path, headers, body)


def replying(answer: Callable[[Received], Reply]) -> Conversation:
    """Answer each request on a connection, until the client leaves."""

    def converse(connection: socket.socket, _stop: threading.Event) -> None:
        while (request := read_request(connection)) is not None:
            connection.sendall(answer(request).encoded())

    return converse


def never_answering(connection: socket.socket, stop: threading.Event) -> None:
    """Take the request and keep the client waiting."""
    read_request(connection)
    stop.wait()


def stalling_in_the_body(connection: socket.socket, stop: threading.Event) -> None:
    """Send a good head and half of the body, and then nothing."""
    read_request(connection)
    connection.sendall(_half_an_answer())
    stop.wait()


def breaking_off(connection: socket.socket, _stop: threading.Event) -> None:
    """Send a good head and half of the body, and close."""
    read_request(connection)
    connection.sendall(_half_an_answer())


def _half_an_answer() -> bytes:
    whole = Reply(200, b'{"answers":{"refund":{"type":"noul","noul":0.9}}}').encoded()
    return whole[:-20]


def forwarding(
    address: str, change: Callable[[Received, Reply], Reply] = lambda _, reply: reply
) -> Conversation:
    """Be a proxy in front of an address that may change what it hands back."""

    def answer(request: Received) -> Reply:
        kept = ("content-type", "content-encoding", "accept", "accept-encoding", "authorization")
        headers = {name: request.headers[name] for name in kept if name in request.headers}
        body = request.body or None
        try:
            upstream = ask(address, request.method, request.path, body, headers=headers)
        except (OSError, http.client.HTTPException):
            return change(request, Reply(502, b"{}"))
        content_type = {"Content-Type": upstream.header("content-type") or ""}
        return change(request, Reply(upstream.status, upstream.body, content_type))

    return replying(answer)


def flip_one_byte(reply: Reply, at: int | None = None) -> Reply:
    """Flip one bit of the body, in its middle if not said where."""
    body = bytearray(reply.body)
    body[len(body) // 2 if at is None else at] ^= 1
    return Reply(reply.status, bytes(body), reply.headers)

"""What every response has, whoever made it: the request's id; and no traceback, ever."""

import re
import time
import uuid
from collections.abc import Iterable
from typing import Final

from omni_jev_worker import log
from omni_jev_worker.http import (
    Application,
    ClientGone,
    Message,
    Receive,
    Response,
    Scope,
    Send,
)
from omni_jev_worker.protocol import problems, render

ID_HEADERS: Final = (b"x-request-id", b"x-typesafe-request-id")
"""The response headers that hold the request's id."""

_GOOD_ID: Final = re.compile(rb"[!-~]{1,128}")
_CLIENT_GONE: Final = 499


class Envelope:
    """An application around another one."""

    def __init__(self, inner: Application) -> None:
        self._inner = inner
        self.closing = False
        """Whether each connection is closed with its next answer."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        identity = request_id(scope["headers"])
        started = time.monotonic()
        status = _CLIENT_GONE

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                kept = [pair for pair in message.get("headers", ()) if pair[0] not in ID_HEADERS]
                if self.closing:
                    kept.append((b"connection", b"close"))
                message["headers"] = kept + [(name, identity) for name in ID_HEADERS]
            await send(message)

        try:
            await self._inner(scope, receive, send_with_id)
        except ClientGone:
            # No answer: nobody is there to read it.
            pass
        except Exception as fault:
            # The only place that turns the unexpected into an answer. The fault's text may quote
            # the body, so the log gets its type and place.
            log.error(f"a request failed: {log.where(fault)}", request_id=identity.decode())
            if status == _CLIENT_GONE:
                problem = problems.internal()
                await Response(problem.status, render.to_json(problem.body)).send(send_with_id)
        if log.tells_debug():
            log.debug(
                "answered",
                method=scope["method"],
                path=scope["path"][:100],
                status=status,
                ms=round(1000 * (time.monotonic() - started), 1),
                request_id=identity.decode(),
            )


def request_id(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Keep the id that the client or the frontend gave, if it can stand in a header and a log."""
    for name, value in headers:
        if name == b"x-request-id" and _GOOD_ID.fullmatch(value):
            return bytes(value)
    return uuid.uuid4().hex.encode()

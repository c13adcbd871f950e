"""Requests that go the whole way before a client's do, so that the first client's takes no longer.

The warm-up runs the model alone. What is around it (parsing, checks, the tokenizer's memory, the
change between threads, rendering) is slow at its first calls as well: of a GPU's answer it is half.
"""

import asyncio
import itertools
import json
import time
from typing import Final

from omni_jev_worker import log
from omni_jev_worker.http import Application, Header, Message, Scope
from omni_jev_worker.warmup import request_texts

PATH: Final = "/v1/systemone"
MOST: Final = 64
SECONDS: Final = 0.5
"""A slow model is not asked again and again: beside it nothing of this can be noticed."""

MISDIRECTED: Final = 421

_ABREAST: Final = 4


async def rehearse(application: Application, model: str, api_key: bytes | None) -> int:
    """Ask for decisions as clients do, alone and several at once; give how many were answered.

    ``model`` is the default's name: no other checkpoint is loaded for this. Ends after `MOST` of
    them, `SECONDS`, or the first that is not answered, which is logged.
    """
    asked = [{"model": model, **each} for each in request_texts()]
    bodies = itertools.cycle([json.dumps(each).encode() for each in asked])
    end = time.monotonic() + SECONDS
    answered = 0
    while answered < MOST:
        # Alone a text is read on the event loop, and in a thread where there are several.
        abreast = 1 if answered < MOST // 2 else _ABREAST
        asking = [_ask(application, next(bodies), api_key) for _ in range(abreast)]
        statuses = await asyncio.gather(*asking)
        failed = [status for status in statuses if status != 200]
        if failed:
            # A lane that takes less than this is asked for less as well.
            if failed[0] != MISDIRECTED:
                log.warning(f"a request of the warm-up was answered {failed[0]}", phase="warmup")
            break
        answered += len(statuses)
        if time.monotonic() >= end:
            break
    return answered


async def _ask(application: Application, body: bytes, api_key: bytes | None) -> int:
    """Ask for one decision; give the status of its answer, 0 if there was none."""
    sent = False
    status = 0

    async def receive() -> Message:
        nonlocal sent
        if sent:
            # It stays connected.
            await asyncio.get_running_loop().create_future()
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        nonlocal status
        status = message.get("status", status)

    await application(_scope(body, api_key), receive, send)
    return status


def _scope(body: bytes, api_key: bytes | None) -> Scope:
    headers: list[Header] = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        (b"x-request-id", b"warm-up"),
    ]
    if api_key is not None:
        headers.append((b"authorization", b"Bearer " + api_key))
    return {
        "type": "http",
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "root_path": "",
        "path": PATH,
        "raw_path": PATH.encode(),
        "query_string": b"",
        "headers": headers,
        "client": None,
        "server": None,
    }

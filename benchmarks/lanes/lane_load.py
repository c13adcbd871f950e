"""Requests that are due, and clients that ask all the time, from one process and its event loop."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.lanes.arrivals import Due

PATIENCE_S: Final = 60.0
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_LANE = re.compile(rb"\r\nx-omni-jev-lane: *([^\r]*)", re.IGNORECASE)
_REASON = re.compile(rb"\r\nx-omni-jev-routing-reason: *([^\r]*)", re.IGNORECASE)

Address = tuple[str, int]


@dataclass
class Answered:
    """What one request got. Times are in seconds from the round's beginning."""

    number: int
    kind: str
    due: float
    sent: float
    done: float
    status: int
    """0 where the connection broke."""
    lane: str
    reason: str
    answers: Any
    """By the question's place, without its id."""

    @property
    def late_by(self) -> float:
        """Seconds from the moment that it was due."""
        return self.done - self.due

    def record(self) -> dict[str, Any]:
        """Give it for the raw results, without the answers."""
        return {
            "number": self.number,
            "kind": self.kind,
            "due": round(self.due, 6),
            "sent": round(self.sent, 6),
            "done": round(self.done, 6),
            "status": self.status,
            "lane": self.lane,
            "reason": self.reason,
        }


class Pool:
    """Kept connections to one server."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def exchange(self, request: bytes) -> tuple[int, bytes, bytes]:
        """Send a request; the status, head and body of its answer. Raises `OSError`."""
        reader, writer = (
            self._idle.pop() if self._idle else await asyncio.open_connection(*self._address)
        )
        try:
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            length = _LENGTH.search(head)
            body = await reader.readexactly(int(length[1])) if length is not None else b""
        except (asyncio.IncompleteReadError, OSError) as error:
            writer.close()
            raise ConnectionError("the connection broke") from error
        self._idle.append((reader, writer))
        return int(head[9:12]), head, body

    def close(self) -> None:
        """End all connections."""
        for _, writer in self._idle:
            writer.close()
        self._idle.clear()


async def open_loop(
    address: Address,
    table: Sequence[Due],
    events: Sequence[tuple[float, Any]] = (),
    begun: float | None = None,
) -> list[Answered]:
    """Send each request when it is due, answered or not what was before; call the events too.

    ``begun`` is the round's beginning by `time.perf_counter`, if it is not now.
    """
    pool = Pool(address)
    if begun is None:
        begun = time.perf_counter()

    async def one(due: Due) -> Answered:
        sent = time.perf_counter() - begun
        status, head, body = await _asked(pool, due.request)
        done = time.perf_counter() - begun
        return Answered(
            due.number,
            due.kind,
            due.at,
            sent,
            done,
            status,
            _found(_LANE, head),
            _found(_REASON, head),
            _answers(status, body),
        )

    async def call(at: float, event: Any) -> None:
        await asyncio.sleep(max(0.0, at - (time.perf_counter() - begun)))
        await asyncio.to_thread(event)

    called = [asyncio.create_task(call(at, event)) for at, event in events]
    tasks = []
    for due in table:
        ahead = due.at - (time.perf_counter() - begun)
        if ahead > 0:
            await asyncio.sleep(ahead)
        tasks.append(asyncio.create_task(one(due)))
    answered = await asyncio.gather(*tasks)
    await asyncio.gather(*called)
    pool.close()
    return answered


async def closed_loop(
    address: Address, requests: Iterator[bytes], clients: int, seconds: float
) -> float:
    """Let clients ask one after the other for so long; answers a second."""
    pool, begun = Pool(address), time.perf_counter()
    answered = 0

    async def client() -> None:
        nonlocal answered
        while time.perf_counter() - begun < seconds:
            status, _, _ = await _asked(pool, next(requests))
            if time.perf_counter() - begun < seconds:
                answered += status == 200

    await asyncio.gather(*(client() for _ in range(clients)))
    pool.close()
    return answered / seconds


async def _asked(pool: Pool, request: bytes) -> tuple[int, bytes, bytes]:
    try:
        return await asyncio.wait_for(pool.exchange(request), PATIENCE_S)
    except (OSError, TimeoutError):
        return 0, b"", b""


def _found(pattern: re.Pattern[bytes], head: bytes) -> str:
    found = pattern.search(head)
    return found[1].decode() if found is not None else ""


def _answers(status: int, body: bytes) -> Any:
    """Give the answers of a decision in the questions' order: ids differ from round to round."""
    return list(json.loads(body)["answers"].values()) if status == 200 else None

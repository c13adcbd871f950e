"""One client of a server: its first request, its answers, its warm latency."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from benchmarks.gpu import load
from benchmarks.gpu.connection import Connection
from benchmarks.gpu.outcome import Outcome, fault
from benchmarks.gpu.workload import Item
from benchmarks.laya.inputs import Input
from benchmarks.laya.subjects import Subject

Bar = Callable[[str, Iterable[Item], int], Iterable[Item]]


class Refused(Exception):
    """A server answered with something other than 200; says what."""


class Client:
    """A kept connection to a subject, and what its answers must say."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self._connection = Connection(subject.address)
        self._tokens: dict[str, int] = {}

    def ask(self, one: Input) -> tuple[float, dict[str, Any]]:
        """Ask once; the seconds it took, and the answer's body. Raises `Refused`, `OSError`."""
        request = one.item(self.subject.path, self.subject.host).request
        self._connection.refresh()
        begun = time.perf_counter()
        reply = self._connection.exchange(request)
        seconds = time.perf_counter() - begun
        if reply.closes:
            self._connection.reopen()
        if reply.status != 200:
            raise Refused(f"{one.name}: status {reply.status}: {reply.body[:200]!r}")
        body: dict[str, Any] = json.loads(reply.body)
        counted = body.get("usage", {}).get("input_tokens", 0)
        self._tokens[one.name] = counted if isinstance(counted, int) else 0
        return seconds, body

    def time(self, item: Item) -> float:
        """Ask a made request; the seconds that it took. Raises `Refused`, `OSError`."""
        self._connection.refresh()
        begun = time.perf_counter()
        reply = self._connection.exchange(item.request)
        seconds = time.perf_counter() - begun
        wrong = fault(item, reply)
        if wrong is not None:
            raise Refused(wrong)
        return seconds

    def item(self, one: Input) -> Item:
        """Give a request that was asked before, whose answers must count the tokens as then."""
        counted = self._tokens.get(one.name, 0)
        return one.item(self.subject.path, self.subject.host, counted)

    def tokens(self, one: Input) -> int | None:
        """Give what the server counted, if it did."""
        return self._tokens.get(one.name) or None

    def answers(self, asked: Sequence[Input]) -> list[dict[str, Any]]:
        """Ask each once, and give lines for the results; a refusal is one of them."""
        lines = []
        for one in asked:
            try:
                _, body = self.ask(one)
                lines.append({"input": one.name, "answers": body["answers"]})
            except Refused as refused:
                lines.append({"input": one.name, "refused": str(refused)})
        return lines

    def latency(self, one: Input, warm: int, count: int, bar: Bar) -> Outcome:
        """Ask one request after the other on a connection of its own."""
        item = self.item(one)
        items = bar(one.title, [item] * (warm + count), warm + count)
        return load.one_client(self.subject.address, items, warm, float("inf"))

    def close(self) -> None:
        """End the connection."""
        self._connection.close()

"""Clients that ask all the time, and what each of them saw."""

import http.client
import itertools
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from tests.harness.client import Answer, ask, assert_own_error, assert_unavailable

OWN_ERRORS = {502: "backend_error", 503: "service_unavailable", 504: "timeout_error"}

# How long a client waits: far longer than any answer may take.
PATIENCE = 40.0


@dataclass(frozen=True)
class Seen:
    """One request: when it was sent, when its client knew more, and what."""

    sent: float
    known: float
    answer: Answer | None
    fault: Exception | None

    @property
    def status(self) -> int:
        """0 where the connection broke without an answer."""
        return self.answer.status if self.answer is not None else 0

    @property
    def took(self) -> float:
        return self.known - self.sent

    @property
    def message(self) -> str:
        assert self.answer is not None
        return str(self.answer.json()["detail"]["message"])


def assert_ended_with(seen: list[Seen], status: int, within: float) -> None:
    """All of these requests ended so, not later than this after they were sent."""
    assert seen
    assert {one.status for one in seen} == {status}
    assert max(one.took for one in seen) < within


def assert_soon(seen: list[Seen], moment: float, seconds: float) -> None:
    """All of these requests were answered within so many seconds of that moment."""
    late = max(one.known for one in seen) - moment
    assert late < seconds, f"{late:.2f} s"


def echoed(number: str, answer: Answer) -> None:
    """The fake worker's answer: the request's own state."""
    assert answer.json()["echo"] == number, "somebody else's answer"


class Clients:
    """Threads that ask one after the other while the `with` lasts; every answer is checked."""

    def __init__(
        self,
        address: str,
        count: int = 3,
        *,
        pause: float = 0.01,
        body: Callable[[str], Mapping[str, Any]] = lambda number: {"state": number},
        check: Callable[[str, Answer], None] = echoed,
    ) -> None:
        self._address = address
        self._pause = pause
        self._body = body
        self._check = check
        self._numbers = itertools.count(1)
        self._stop = threading.Event()
        self._changed = threading.Condition()
        self._seen: list[Seen] = []
        self._wrong: list[str] = []
        self._since: dict[int, float] = {}
        self._threads = [threading.Thread(target=self._ask, daemon=True) for _ in range(count)]

    def __enter__(self) -> "Clients":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(PATIENCE + 5)
        if kind is None:
            assert not any(thread.is_alive() for thread in self._threads), "a request never ended"
            assert not self._wrong, self._wrong

    def seen(self, since: float = 0.0) -> list[Seen]:
        """What was seen by requests sent since then, in the order in which it was known."""
        with self._changed:
            return [seen for seen in self._seen if seen.sent >= since]

    def statuses(self, since: float = 0.0) -> Counter[int]:
        return Counter(seen.status for seen in self.seen(since))

    def in_flight_at(self, moment: float) -> list[Seen]:
        """Requests that were waiting at that moment; those still unknown are waited for."""

        def all_known() -> bool:
            return len([s for s in self._seen if s.known > moment]) >= len(self._threads)

        with self._changed:
            assert self._changed.wait_for(all_known, PATIENCE), "a request does not end"
            return [seen for seen in self._seen if seen.sent < moment < seen.known]

    def wait_for(self, status: int, since: float, count: int = 1, seconds: float = 30) -> Seen:
        """Wait until so many requests sent since then have seen this status; the last of them."""

        def matching() -> list[Seen]:
            return [s for s in self._seen if s.sent >= since and s.status == status]

        with self._changed:
            met = self._changed.wait_for(lambda: len(matching()) >= count, seconds)
            assert met, f"no {count} times {status} in {seconds} s: {self.statuses(since)}"
            return matching()[count - 1]

    def wait_until_waiting(self, held: float = 0.0, seconds: float = 20) -> None:
        """Wait until every client has a request without an answer, sent so many seconds ago."""
        deadline = time.monotonic() + seconds
        while not self._all_wait(held):
            assert time.monotonic() < deadline, "the clients do not wait"
            time.sleep(0.01)

    def hold(self, pid: int) -> None:
        """Stop a process that their answers need, and wait until no answer is under way any more.

        What they wait for then, only the end of that process can decide.
        """
        os.kill(pid, signal.SIGSTOP)
        self.wait_until_waiting(held=0.5)

    def _all_wait(self, held: float) -> bool:
        with self._changed:
            latest = time.monotonic() - held
            waiting = [sent for sent in self._since.values() if sent <= latest]
            return len(waiting) == len(self._threads)

    def _ask(self) -> None:
        while not self._stop.is_set():
            number = str(next(self._numbers))
            sent = time.monotonic()
            with self._changed:
                self._since[threading.get_ident()] = sent
            answer, fault = None, None
            try:
                answer = ask(
                    self._address, "POST", "/v1/systemone", self._body(number), timeout=PATIENCE
                )
            except (OSError, http.client.HTTPException) as error:
                fault = error
            with self._changed:
                del self._since[threading.get_ident()]
            seen = Seen(sent, time.monotonic(), answer, fault)
            self._judge(number, seen)
            with self._changed:
                self._seen.append(seen)
                self._changed.notify_all()
            self._stop.wait(self._pause)

    def _judge(self, number: str, seen: Seen) -> None:
        """Anything but the right answer or an honest refusal is kept as wrong."""
        if seen.answer is None:
            return
        try:
            if seen.status == 200:
                self._check(number, seen.answer)
            elif seen.status == 503:
                assert_unavailable(seen.answer)
            else:
                assert_own_error(seen.answer, seen.status, OWN_ERRORS[seen.status])
        except (AssertionError, KeyError, ValueError) as error:
            self._wrong.append(f"{seen.status}: {error!r}")

"""Loads that one process cannot send: the same requests at the same moments, from several."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Final

from benchmarks.lanes.arrivals import Due
from benchmarks.lanes.lane_load import Address, Answered, closed_loop, open_loop

Event = tuple[float, Callable[[], None]]

_HEAD_START_S: Final = 1.0
"""In which all processes get what they have to send."""


class Senders:
    """So many processes that send; one is this process itself."""

    def __init__(self, count: int) -> None:
        """Take how many."""
        self._count = count
        self.begun = 0.0
        """When the last round of arrivals began, by `time.perf_counter`."""

    def arrive(
        self, address: Address, table: Sequence[Due], events: Sequence[Event] = ()
    ) -> list[Answered]:
        """Send each request when it is due; give what each got, in their order."""
        if self._count == 1:
            self.begun = time.perf_counter()
            return asyncio.run(open_loop(address, table, events, self.begun))
        with ProcessPoolExecutor(self._count) as pool:
            # The clock of all processes of a machine is one (CLOCK_MONOTONIC).
            begun = self.begun = time.perf_counter() + _HEAD_START_S
            timers = [
                threading.Timer(begun + at - time.perf_counter(), event) for at, event in events
            ]
            sent = [
                pool.submit(_open, address, table[number :: self._count], begun)
                for number in range(self._count)
            ]
            for timer in timers:
                timer.start()
            answered = [each for part in sent for each in part.result()]
            for timer in timers:
                timer.join()
        return sorted(answered, key=lambda each: each.number)

    def most(
        self, address: Address, requests: Sequence[bytes], clients: int, seconds: float
    ) -> float:
        """Let clients ask one after the other for so long; answers a second."""
        if self._count == 1:
            return _closed(address, requests, clients, seconds)
        each = -(-clients // self._count)
        with ProcessPoolExecutor(self._count) as pool:
            sent = [
                pool.submit(_closed, address, requests[number :: self._count], each, seconds)
                for number in range(self._count)
            ]
            return sum(part.result() for part in sent)


def _open(address: Address, table: Sequence[Due], begun: float) -> list[Answered]:
    return asyncio.run(open_loop(address, table, begun=begun))


def _closed(address: Address, requests: Sequence[bytes], clients: int, seconds: float) -> float:
    return asyncio.run(closed_loop(address, itertools.cycle(requests), clients, seconds))

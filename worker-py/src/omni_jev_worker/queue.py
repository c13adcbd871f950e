"""The bounded queue between HTTP and the thread that owns torch.

A request is admitted before it costs anything: its rows (one a question) count against the
capacity from then until it is answered or given up. Past the capacity it is refused, so that a
client learns at once what it would otherwise learn by timing out.

Whoever gave up (its client left, its time ran out) has cancelled its job's future; such a job
leaves the queue at once and never reaches the device.
"""

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

_SMOOTHING: Final = 0.1


class QueueFull(Exception):
    """No room; ``retry_after`` is the seconds after which there may be some."""

    def __init__(self, retry_after: int) -> None:
        super().__init__(f"the queue is full, retry after {retry_after} s")
        self.retry_after = retry_after


class QueueClosed(Exception):
    """The worker stops, and takes nothing more."""


@dataclass(slots=True, eq=False)
class Job:
    """Rows of one request, tokenized, waiting for the device."""

    checkpoint: str
    encoded: Any
    """What `model.Model.encode` gave; only the engine looks inside."""
    rows: int
    result: "Future[Any]" = field(default_factory=Future)
    """Completed by the engine; cancelled by whoever gave up."""
    queued_at: float = field(default_factory=time.monotonic)


@dataclass(slots=True, eq=False)
class Errand:
    """Work for the engine's thread that answers no request."""

    work: "Callable[[], Any]"
    result: "Future[Any]" = field(default_factory=Future)
    queued_at: float = field(default_factory=time.monotonic)


@dataclass(frozen=True, slots=True)
class QueueState:
    """What `/health` says of the queue."""

    depth: int
    """Rows admitted and not answered yet."""
    capacity: int
    oldest_ms: int
    """How long the first waiting job has waited."""
    batches: int
    """Forward passes since the start."""
    rows: int
    """Rows answered since the start."""


class RowQueue:
    """First in, first out, for many producers and one consumer. All methods are thread-safe."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._changed = threading.Condition()
        self._waiting: deque[Job | Errand] = deque()
        self._admitted = 0
        self._closed = False
        self._batches = 0
        self._rows = 0
        self._seconds_a_row = 0.05

    @contextmanager
    def admit(self, rows: int) -> Iterator[None]:
        """Hold room for a request while it is tokenized, waits and runs.

        Raises `QueueFull` or `QueueClosed`. An empty queue takes any request: one that alone is
        over the capacity would otherwise never be answered.
        """
        with self._changed:
            if self._closed:
                raise QueueClosed
            if self._admitted and self._admitted + rows > self._capacity:
                raise QueueFull(self._retry_after())
            self._admitted += rows
        try:
            yield
        finally:
            with self._changed:
                self._admitted -= rows

    def put(self, job: Job | Errand) -> None:
        """Hand an admitted job, or an errand, to the engine. Raises `QueueClosed`."""
        with self._changed:
            if self._closed:
                raise QueueClosed
            self._waiting.append(job)
            self._changed.notify()
        job.result.add_done_callback(lambda result: self._forget(job, result))

    def _forget(self, job: Job | Errand, result: "Future[Any]") -> None:
        if result.cancelled():
            with self._changed, suppress(ValueError):
                self._waiting.remove(job)

    def take(self) -> Job | Errand | None:
        """Wait for the next job that somebody still wants; none means that the queue is closed.

        The job's future is running from here on: it can no longer be cancelled.
        """
        while True:
            with self._changed:
                while not self._waiting and not self._closed:
                    self._changed.wait()
                if not self._waiting:
                    return None
                job = self._waiting.popleft()
            if job.result.set_running_or_notify_cancel():
                return job

    def ran(self, rows: int, seconds: float) -> None:
        """Note a forward pass, for the counters and for the estimate of `QueueFull`."""
        with self._changed:
            self._batches += 1
            self._rows += rows
            self._seconds_a_row += _SMOOTHING * (seconds / max(1, rows) - self._seconds_a_row)

    def close(self) -> None:
        """Take nothing more; what waits is still given out by `take`."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def state(self) -> QueueState:
        """Read the counters."""
        with self._changed:
            oldest = self._waiting[0].queued_at if self._waiting else None
            return QueueState(
                depth=self._admitted,
                capacity=self._capacity,
                oldest_ms=round(1000 * (time.monotonic() - oldest)) if oldest is not None else 0,
                batches=self._batches,
                rows=self._rows,
            )

    def _retry_after(self) -> int:
        """Estimate when half of the queue is done: 1 to 30 seconds."""
        return min(30, max(1, math.ceil(self._admitted * self._seconds_a_row / 2)))

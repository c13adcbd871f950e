"""The bounded queue between HTTP and the thread that owns torch.

A request is admitted before it costs anything: its rows (one a question) count against the
capacity from then until it is answered or given up. Past the capacity it is refused, so that a
client learns at once what it would otherwise learn by timing out.

Whoever gave up (its client left, its time ran out) has cancelled its job's future; such a job
leaves the queue at once, and none of its rows that are not running yet reaches the device.
"""

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

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
    lengths: tuple[int, ...]
    """The tokens of each row, at least one row."""
    embeds: bool = False
    """Whether its rows are texts to be embedded, which share no pass with questions."""
    result: "Future[Any]" = field(default_factory=Future)
    """Completed by the engine; until then it can be cancelled by whoever gave up."""
    queued_at: float = field(default_factory=time.monotonic)
    begun_at: float = 0.0
    """When the first of its rows were started; the engine's own until the result is there."""
    shortest: int = field(init=False)
    """The tokens of its shortest row."""
    left: list[int] = field(init=False)
    """The rows that the engine has not been given yet; the queue's own."""
    parts: "list[tuple[Slice, Any]]" = field(default_factory=list)
    """What has run and its scores so far; the engine's own."""

    def __post_init__(self) -> None:
        self.shortest = min(self.lengths)
        self.left = list(range(len(self.lengths)))

    @property
    def rows(self) -> int:
        """The number of its rows."""
        return len(self.lengths)


@dataclass(frozen=True, slots=True)
class Slice:
    """Rows of a job that run in one batch, in the order of their numbers."""

    job: Job
    rows: tuple[int, ...]


@dataclass(slots=True, eq=False)
class Errand:
    """Work for the engine's thread that answers no request."""

    work: "Callable[[], Any]"
    result: "Future[Any]" = field(default_factory=Future)
    queued_at: float = field(default_factory=time.monotonic)


@dataclass(frozen=True, slots=True)
class Idle:
    """Nothing came for a while."""


class Former(Protocol):
    """Chooses which rows run together: `batching.Batcher`."""

    def form(self, waiting: Iterable[Job]) -> list[Slice]:
        """Choose from at least one job, in order of arrival; at least one row.

        Thousands may wait, and nobody else comes to the queue meanwhile: what need not be looked at
        is best not taken from ``waiting``, which can be gone through more than once.
        """


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
    """For many producers and one consumer. All methods are thread-safe."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._changed = threading.Condition()
        # For its order, and for what leaves from its middle.
        self._waiting: OrderedDict[Job | Errand, None] = OrderedDict()
        self._waiting_tokens = 0
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
            self._waiting[job] = None
            if isinstance(job, Job):
                self._waiting_tokens += _tokens(job)
            self._changed.notify()
        job.result.add_done_callback(lambda _: self._forget(job))

    def _forget(self, job: Job | Errand) -> None:
        """Drop a job that was given up, or of which a part has failed."""
        if isinstance(job, Job) and not job.left:
            # The engine has been given all of it.
            return
        with self._changed:
            self._drop(job)

    def _drop(self, job: Job | Errand) -> None:
        if job in self._waiting:
            del self._waiting[job]
            if isinstance(job, Job):
                self._waiting_tokens -= _tokens(job)

    def take(
        self, former: Former, idle_seconds: float | None = None
    ) -> list[Slice] | Errand | Idle | None:
        """Wait for the next rows to run, or the next errand; none means that the queue is closed.

        Rows are given out as soon as there are any. An errand's turn comes when everything that
        came before it has been given out. With ``idle_seconds``, so long a wait ends in `Idle`.
        """
        with self._changed:
            while True:
                ended = self._changed.wait_for(lambda: self._waiting or self._closed, idle_seconds)
                if not ended:
                    return Idle()
                if not self._waiting:
                    return None
                if found := self._next(former):
                    return found

    def _next(self, former: Former) -> list[Slice] | Errand | None:
        """Give what is next of what waits; none if nobody wants it any more."""
        first = next(iter(self._waiting))
        if isinstance(first, Errand):
            self._drop(first)
            return first if first.result.set_running_or_notify_cancel() else None
        slices = former.form(_Ahead(self._waiting))
        if self._drop_unwanted(slices):
            return None
        for piece in slices:
            self._give_out(piece)
        return slices

    def _drop_unwanted(self, slices: Sequence[Slice]) -> bool:
        """Drop the chosen jobs that were given up and are about to leave; say if there were any."""
        unwanted = [piece.job for piece in slices if piece.job.result.done()]
        for job in unwanted:
            self._drop(job)
        return bool(unwanted)

    def _give_out(self, piece: Slice) -> None:
        job = piece.job
        self._waiting_tokens -= sum(job.lengths[row] for row in piece.rows)
        job.left = [row for row in job.left if row not in piece.rows]
        if not job.left:
            del self._waiting[job]

    def ran(self, rows: int, seconds: float) -> None:
        """Note a forward pass, for the counters and for the estimate of `QueueFull`."""
        with self._changed:
            self._batches += 1
            self._rows += rows
            self._seconds_a_row += _SMOOTHING * (seconds / max(1, rows) - self._seconds_a_row)

    def count_from_now(self) -> None:
        """Forget the batches that ran so far: they were nobody's."""
        with self._changed:
            self._batches = self._rows = 0

    def waiting_tokens(self) -> int:
        """Count the tokens that wait for the engine."""
        with self._changed:
            return self._waiting_tokens

    def close(self) -> None:
        """Take nothing more; what waits is still given out by `take`."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def state(self) -> QueueState:
        """Read the counters."""
        with self._changed:
            oldest = next(iter(self._waiting)).queued_at if self._waiting else None
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


class _Ahead:
    """The jobs that come before the next errand, in order of arrival."""

    def __init__(self, waiting: Iterable[Job | Errand]) -> None:
        self._waiting = waiting

    def __iter__(self) -> Iterator[Job]:
        for each in self._waiting:
            if isinstance(each, Errand):
                return
            yield each


def _tokens(job: Job) -> int:
    """Count the tokens of the rows that the engine has not been given."""
    return sum(job.lengths[row] for row in job.left)

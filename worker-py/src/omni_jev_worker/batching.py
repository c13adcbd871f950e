"""Which waiting rows run together: pure, so that it can be reasoned about and tested.

The cost of a forward pass is taken to be a fixed part and a part for each padded token. Rows
share a pass while what the padding costs is no more than the pass that it saves, and while the
pass keeps its bounds.

A batch is formed around the oldest row that waits, of rows of about its length. Where the oldest
is much longer than the shortest, batches are formed around each in turn. So a short row waits for
at most one batch of much longer ones, however many of them wait, and a long one is never starved
by short ones. The rows of one request may run in several batches.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from omni_jev_worker.buckets import Buckets
from omni_jev_worker.queue import Job, Slice


@dataclass(frozen=True, slots=True)
class Bounds:
    """How large a batch may be, and what a pass costs that it saves."""

    rows: int
    tokens: int
    """Rows times padded length; a row that is longer than this alone runs alone."""
    pass_tokens: int
    """A pass's fixed cost, in tokens that take as long."""


# Measured (README, "Batches"): past so many tokens a pass gains little more, and makes others wait.
# Those of MPS are an estimate; a GPU's fixed cost is the launch of the kernels.
_BOUNDS: Final = {
    "cpu": Bounds(rows=64, tokens=512, pass_tokens=64),
    "mps": Bounds(rows=64, tokens=8192, pass_tokens=512),
    "cuda": Bounds(rows=64, tokens=8192, pass_tokens=4096),
}


PACKED: Final = Bounds(rows=64, tokens=512, pass_tokens=0)
"""The bounds of a batch of unpadded rows on the CPU."""


def bounds_for(device: str) -> Bounds:
    """Give the bounds of a batch on a device."""
    return _BOUNDS.get(device, _BOUNDS["cuda"])


# How many times as long "much longer" is.
_MUCH_LONGER: Final = 4
# The same for rows that run unpadded, where a pass is over sooner and order is worth more.
_MUCH_SHORTER: Final = 8
# Tokens within which two lengths count as the same.
_ALIKE: Final = 8


class Batcher:
    """Forms batches. Called by the queue alone, one call at a time."""

    def __init__(self, bounds: Bounds, buckets: Buckets) -> None:
        self._bounds = bounds
        self._buckets = buckets
        self._around_oldest = False

    def form(self, waiting: Iterable[Job]) -> list[Slice]:
        """Choose the rows of the next batch among jobs in the order of their arrival.

        ``waiting`` is not empty and each job has rows left.
        """
        rows = _rows(waiting, self._buckets)
        oldest = rows[0].job
        seed = rows[0]
        shortest = min(rows, key=lambda row: row.length)
        if shortest.length * _MUCH_LONGER <= seed.length and not self._around_oldest:
            seed = shortest
        # Those that are about as near to the seed's length keep the order of their arrival: sorted
        # by the token, the newest of a common length would pass the older ones of rare lengths.
        rows.sort(key=lambda row: (row is not seed, abs(row.length - seed.length) // _ALIKE))
        filling = _Filling(self._bounds)
        chosen: dict[Job, list[int]] = {}
        for row in rows:
            if filling.add(row.length):
                chosen.setdefault(row.job, []).append(row.number)
        # Passed over once, the oldest is what the next batch is formed around.
        self._around_oldest = oldest not in chosen
        return _slices(chosen)


class PackedBatcher:
    """Forms batches of rows that run unpadded, where a row costs the same in any company.

    The oldest row, then the others in the order of their arrival until one does not fit. Those that
    are much shorter than the oldest go before the others: they cost little, and need not wait for
    more than it. The others do not pass each other: that would serve few sooner and one much later.
    """

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds

    def form(self, waiting: Iterable[Job]) -> list[Slice]:
        """Choose the rows of the next batch among jobs in the order of their arrival."""
        oldest = next(iter(waiting))
        packing = _Packing(self._bounds)
        packing.add(oldest, oldest.left[0])
        longest = oldest.lengths[oldest.left[0]] // _MUCH_SHORTER
        if packing.add_all(_company(waiting, oldest), 0, longest):
            packing.add_all(_company(waiting, oldest), longest + 1, None)
        return _slices(packing.chosen)


class _Packing:
    """A batch of unpadded rows while it grows."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._count = self._tokens = 0
        self.chosen: dict[Job, list[int]] = {}

    def add(self, job: Job, row: int) -> bool:
        """Take one more row; whether it fits."""
        tokens = self._tokens + job.lengths[row]
        if self._count and (tokens > self._bounds.tokens or self._count == self._bounds.rows):
            return False
        self._count, self._tokens = self._count + 1, tokens
        self.chosen.setdefault(job, []).append(row)
        return True

    def add_all(self, jobs: Iterable[Job], least: int, most: int | None) -> bool:
        """Take the rows of such lengths that are not taken yet; false once one does not fit."""
        for job in jobs:
            # Most of thousands are told by this alone.
            if most is not None and job.shortest > most:
                continue
            for row in job.left:
                length = job.lengths[row]
                if length < least or (most is not None and length > most):
                    continue
                if row not in self.chosen.get(job, ()) and not self.add(job, row):
                    return False
        return True


def _company(waiting: Iterable[Job], oldest: Job) -> Iterator[Job]:
    """Give the jobs that may share a pass with the oldest, in the order of their arrival."""
    checkpoint, embeds = oldest.checkpoint, oldest.embeds
    return (job for job in waiting if job.checkpoint == checkpoint and job.embeds == embeds)


def _rows(waiting: Iterable[Job], buckets: Buckets) -> "list[_Row]":
    """Give the rows that may share a pass with the oldest, in the order of their arrival."""
    return [
        _Row(job, row, buckets.length(job.lengths[row]))
        for job in _company(waiting, next(iter(waiting)))
        for row in job.left
    ]


def _slices(chosen: dict[Job, list[int]]) -> list[Slice]:
    return [Slice(job, tuple(sorted(rows))) for job, rows in chosen.items()]


@dataclass(frozen=True, slots=True, eq=False)
class _Row:
    """A row that waits."""

    job: Job
    number: int
    length: int
    """Its tokens, padded to a bucket."""


class _Filling:
    """The sizes of a batch while it grows."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._rows = 0
        self._longest = 0
        self._tokens = 0

    def add(self, length: int) -> bool:
        """Take one more row of a padded length, if it may share the pass."""
        rows = self._rows + 1
        longest = max(self._longest, length)
        tokens = self._tokens + length
        padded = rows * longest
        if self._rows and (
            rows > self._bounds.rows
            or padded > self._bounds.tokens
            or padded - tokens > self._bounds.pass_tokens
        ):
            return False
        self._rows, self._longest, self._tokens = rows, longest, tokens
        return True

"""Taking from a queue without batching, for tests of everything else."""

from collections.abc import Iterable

from omni_jev_worker.queue import Job, RowQueue, Slice


class OneByOne:
    """Gives the oldest job, whole."""

    def form(self, waiting: Iterable[Job]) -> list[Slice]:
        oldest = next(iter(waiting))
        return [Slice(oldest, tuple(oldest.left))]


def take_job(queue: RowQueue) -> Job:
    """Take one job, which must be there or come."""
    taken = queue.take(OneByOne())
    assert isinstance(taken, list)
    return taken[0].job

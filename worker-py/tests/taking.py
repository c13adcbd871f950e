"""Taking from a queue without batching, for tests of everything else."""

from collections.abc import Sequence

from omni_jev_worker.queue import Job, RowQueue, Slice


class OneByOne:
    """Gives the oldest job, whole."""

    def form(self, waiting: Sequence[Job]) -> list[Slice]:
        return [Slice(waiting[0], tuple(waiting[0].left))]


def take_job(queue: RowQueue) -> Job:
    """Take one job, which must be there or come."""
    taken = queue.take(OneByOne())
    assert isinstance(taken, list)
    return taken[0].job

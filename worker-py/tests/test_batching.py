"""Which rows run together, and that nobody waits for ever."""

from hypothesis import given
from hypothesis import strategies as st

from omni_jev_worker.batching import Batcher, Bounds, PackedBatcher, bounds_for
from omni_jev_worker.buckets import EXACT, Buckets
from omni_jev_worker.queue import Job, RowQueue, Slice

SMALL = Bounds(rows=8, tokens=256, pass_tokens=32)


def job(*lengths: int, checkpoint: str = "tiny") -> Job:
    return Job(checkpoint=checkpoint, encoded=None, lengths=lengths)


def batcher(bounds: Bounds = SMALL, buckets: Buckets = EXACT) -> Batcher:
    return Batcher(bounds, buckets)


def jobs_of(batch: list[Slice]) -> list[Job]:
    return [piece.job for piece in batch]


class Waiting:
    """A queue's waiting jobs and the batches that are formed of them."""

    def __init__(self, *jobs: Job, bounds: Bounds = SMALL, buckets: Buckets = EXACT) -> None:
        self.queue = RowQueue(10_000)
        self.batcher = batcher(bounds, buckets)
        self.put(*jobs)

    def put(self, *jobs: Job) -> None:
        for each in jobs:
            self.queue.put(each)

    def next(self) -> list[Slice]:
        batch = self.queue.take(self.batcher)
        assert isinstance(batch, list)
        return batch

    def all(self) -> list[list[Slice]]:
        batches = []
        self.queue.close()
        while (batch := self.queue.take(self.batcher)) is not None:
            assert isinstance(batch, list)
            batches.append(batch)
        return batches


def test_rows_of_like_length_that_wait_together_run_together() -> None:
    jobs = [job(20), job(21, 22), job(20)]
    batch = Waiting(*jobs).next()
    assert sorted(map(id, jobs_of(batch))) == sorted(map(id, jobs))
    assert sum(len(piece.rows) for piece in batch) == 4


def test_a_batch_keeps_its_rows() -> None:
    batches = Waiting(*(job(8) for _ in range(20))).all()
    assert [len(batch) for batch in batches] == [8, 8, 4]


def test_a_batch_keeps_its_tokens() -> None:
    batches = Waiting(*(job(100) for _ in range(5))).all()
    assert [len(batch) for batch in batches] == [2, 2, 1]


def test_a_row_longer_than_a_batch_may_be_runs_alone() -> None:
    assert [len(batch) for batch in Waiting(job(500), job(500)).all()] == [1, 1]


def test_a_requests_rows_run_in_several_batches_when_they_are_too_many() -> None:
    many = job(*([100] * 5))
    batches = Waiting(many).all()
    assert batches == [[Slice(many, (0, 1))], [Slice(many, (2, 3))], [Slice(many, (4,))]]


def test_rows_whose_padding_would_cost_more_than_a_pass_run_apart() -> None:
    short, long = job(10), job(100)
    batches = Waiting(short, long).all()
    assert [jobs_of(batch) for batch in batches] == [[short], [long]]
    free = Bounds(rows=8, tokens=256, pass_tokens=1000)
    assert len(Waiting(job(10), job(100), bounds=free).all()) == 1


def test_the_rows_of_one_request_run_with_those_of_their_length() -> None:
    mixed = job(10, 100, 10, 100)
    assert Waiting(mixed).all() == [[Slice(mixed, (0, 2))], [Slice(mixed, (1, 3))]]


def test_lengths_count_as_they_are_padded() -> None:
    buckets = Buckets(lengths=(100,))
    assert len(Waiting(job(10), job(99), buckets=buckets).all()) == 1
    assert [len(b) for b in Waiting(*(job(10) for _ in range(3)), buckets=buckets).all()] == [2, 1]


def test_a_short_row_waits_for_at_most_one_batch_of_longer_ones() -> None:
    waiting = Waiting(*(job(128) for _ in range(50)))
    waiting.next()
    # One batch of long ones runs; now a short one comes, behind all the others.
    short = job(10)
    waiting.put(short)
    before = [jobs_of(waiting.next()) for _ in range(2)]
    assert [short] in before


def test_short_rows_without_end_do_not_starve_a_long_one() -> None:
    long = job(128)
    waiting = Waiting(job(10), long)
    batches = []
    for _ in range(3):
        waiting.put(*(job(10) for _ in range(8)))
        batches.append(jobs_of(waiting.next()))
    assert any(long in batch for batch in batches)


def test_rows_of_another_checkpoint_run_apart() -> None:
    one, other = job(10), job(10, checkpoint="other")
    batches = Waiting(one, other).all()
    assert [jobs_of(batch) for batch in batches] == [[one], [other]]


def test_each_device_has_its_bounds() -> None:
    assert bounds_for("cpu").tokens < bounds_for("mps").tokens
    assert bounds_for("cpu").pass_tokens < bounds_for("cuda").pass_tokens


@given(
    st.lists(st.lists(st.integers(1, 512), min_size=1, max_size=12), min_size=1, max_size=30),
    st.sampled_from([EXACT, Buckets(lengths=(64, 128, 512))]),
)
def test_every_row_runs_once_and_every_batch_keeps_its_bounds(
    requests: list[list[int]], buckets: Buckets
) -> None:
    jobs = [job(*lengths) for lengths in requests]
    batches = Waiting(*jobs, buckets=buckets).all()
    ran = {id(each): list[int]() for each in jobs}
    for batch in batches:
        lengths = []
        for piece in batch:
            ran[id(piece.job)].extend(piece.rows)
            lengths += [buckets.length(piece.job.lengths[row]) for row in piece.rows]
        assert len(lengths) <= SMALL.rows
        assert len(lengths) == 1 or len(lengths) * max(lengths) <= SMALL.tokens
        assert len(lengths) * max(lengths) - sum(lengths) <= SMALL.pass_tokens
    assert all(sorted(ran[id(each)]) == list(range(each.rows)) for each in jobs)


def formed(*jobs: Job) -> list[list[Job]]:
    """Form batches of rows that run unpadded, until none waits."""
    queue = RowQueue(10_000)
    for each in jobs:
        queue.put(each)
    queue.close()
    batches = []
    while (batch := queue.take(PackedBatcher(SMALL))) is not None:
        assert isinstance(batch, list)
        batches.append(jobs_of(batch))
    return batches


def test_unpadded_rows_of_unlike_length_run_together_in_the_order_of_their_arrival() -> None:
    jobs = [job(90), job(40), job(120), job(100), job(30)]
    assert formed(*jobs) == [[jobs[0], jobs[1], jobs[2]], [jobs[3], jobs[4]]]


def test_an_unpadded_row_does_not_pass_an_older_one_that_does_not_fit() -> None:
    jobs = [job(200), job(100), job(51)]
    assert formed(*jobs) == [[jobs[0]], [jobs[1], jobs[2]]]


def test_an_unpadded_row_longer_than_the_bound_runs_with_nothing_beside_it() -> None:
    jobs = [job(300), job(10)]
    assert formed(*jobs) == [[jobs[0]], [jobs[1]]]


def test_a_short_unpadded_row_waits_for_one_batch_of_long_ones_at_most() -> None:
    long = [job(100) for _ in range(10)]
    short = job(12)
    assert short in formed(*long, short)[0]


def test_short_unpadded_rows_never_keep_the_oldest_waiting() -> None:
    oldest = job(100)
    assert oldest in formed(oldest, *(job(5) for _ in range(100)))[0]


def test_a_batch_of_unpadded_rows_keeps_its_rows() -> None:
    assert [len(batch) for batch in formed(*(job(8) for _ in range(20)))] == [8, 8, 4]


def test_unpadded_rows_of_another_checkpoint_wait_for_their_own_batch() -> None:
    one, other = job(8), job(8, checkpoint="other")
    assert formed(one, other) == [[one], [other]]

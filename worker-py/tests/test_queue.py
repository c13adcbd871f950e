"""The queue: bounded, in order, and blind to what nobody waits for any more."""

import threading
from collections.abc import Iterable
from concurrent.futures import Future
from typing import Any

import pytest

from omni_jev_worker.batching import PackedBatcher, bounds_for
from omni_jev_worker.queue import Errand, Idle, Job, QueueClosed, QueueFull, RowQueue, Slice
from taking import OneByOne, take_job


def job(rows: int = 1) -> Job:
    return Job(checkpoint="tiny", encoded=None, lengths=(7,) * rows)


class RowByRow:
    """Gives one row of the oldest job."""

    def form(self, waiting: Iterable[Job]) -> list[Slice]:
        oldest = next(iter(waiting))
        return [Slice(oldest, tuple(oldest.left[:1]))]


def test_rows_past_the_capacity_are_refused_with_a_time_to_come_back() -> None:
    queue = RowQueue(4)
    with queue.admit(3):
        with pytest.raises(QueueFull) as full, queue.admit(2):
            pass
        assert 1 <= full.value.retry_after <= 30
        with queue.admit(1):
            assert queue.state().depth == 4


def test_an_empty_queue_takes_a_request_larger_than_its_capacity() -> None:
    queue = RowQueue(2)
    with queue.admit(64):
        assert queue.state().depth == 64


def test_room_is_given_back_when_a_request_fails() -> None:
    queue = RowQueue(1)
    with pytest.raises(RuntimeError), queue.admit(1):
        raise RuntimeError
    assert queue.state().depth == 0


def test_jobs_come_out_in_the_order_they_went_in() -> None:
    queue = RowQueue(9)
    jobs = [job(), job(), job()]
    for each in jobs:
        queue.put(each)
    assert [take_job(queue) for _ in jobs] == jobs


def test_an_abandoned_job_is_never_given_to_the_device() -> None:
    queue = RowQueue(9)
    abandoned, wanted = job(), job()
    queue.put(abandoned)
    queue.put(wanted)
    assert abandoned.result.cancel()
    assert take_job(queue) is wanted


def test_an_abandoned_job_leaves_the_queue_at_once() -> None:
    queue = RowQueue(9)
    abandoned, wanted = job(), job()
    queue.put(abandoned)
    queue.put(wanted)
    assert abandoned.result.cancel()
    assert list(queue._waiting) == [wanted]
    assert wanted.result.cancel()
    assert queue.state().oldest_ms == 0
    assert not queue._waiting


def test_a_job_of_which_a_part_runs_can_be_abandoned_and_the_rest_never_runs() -> None:
    queue = RowQueue(9)
    abandoned, wanted = job(rows=3), job()
    queue.put(abandoned)
    queue.put(wanted)
    assert queue.take(RowByRow()) == [Slice(abandoned, (0,))]
    assert abandoned.result.cancel()
    assert queue.take(RowByRow()) == [Slice(wanted, (0,))]


def test_tokens_count_as_waiting_until_they_are_given_or_given_up() -> None:
    queue = RowQueue(99)
    jobs = [job(rows=3), job(rows=2), job()]
    for each in jobs:
        queue.put(each)
    assert queue.waiting_tokens() == 6 * 7
    assert queue.take(RowByRow()) == [Slice(jobs[0], (0,))]
    assert queue.waiting_tokens() == 5 * 7
    assert jobs[1].result.cancel()
    assert queue.waiting_tokens() == 3 * 7
    assert jobs[0].result.cancel()
    assert queue.waiting_tokens() == 7
    assert take_job(queue) is jobs[2]
    assert queue.waiting_tokens() == 0


def test_a_job_given_up_in_the_midst_of_a_choice_is_not_given_out() -> None:
    queue = RowQueue(9)
    abandoned, wanted = job(), job()
    queue.put(abandoned)
    queue.put(wanted)

    class GivenUp(OneByOne):
        def form(self, waiting: Iterable[Job]) -> list[Slice]:
            chosen = super().form(waiting)
            # Its client leaves now; what would take it from the queue waits for the queue.
            vars(abandoned.result)["_done_callbacks"].clear()
            abandoned.result.cancel()
            return chosen

    assert queue.take(GivenUp()) == [Slice(wanted, (0,))]
    assert queue.waiting_tokens() == 0


def test_a_choice_asks_nothing_of_the_thousands_that_wait_behind_it() -> None:
    class Counted(Future[Any]):
        asked = 0

        def done(self) -> bool:
            Counted.asked += 1
            return super().done()

    queue = RowQueue(9999)
    for _ in range(3000):
        queue.put(Job(checkpoint="tiny", encoded=None, lengths=(7,), result=Counted()))
    batch = queue.take(PackedBatcher(bounds_for("cuda")))
    assert isinstance(batch, list)
    assert len(batch) == 64
    assert Counted.asked == 64


def test_the_rows_of_a_job_are_each_given_once() -> None:
    queue = RowQueue(9)
    split = job(rows=3)
    queue.put(split)
    taken = [queue.take(RowByRow()) for _ in range(3)]
    assert taken == [[Slice(split, (row,))] for row in range(3)]
    queue.close()
    assert queue.take(RowByRow()) is None


def test_an_errand_waits_for_all_rows_before_it_and_no_row_behind_it() -> None:
    queue = RowQueue(9)
    before, errand, behind = job(rows=2), Errand(lambda: None), job()
    for each in (before, errand, behind):
        queue.put(each)
    taken = [queue.take(RowByRow()) for _ in range(4)]
    assert taken == [[Slice(before, (0,))], [Slice(before, (1,))], errand, [Slice(behind, (0,))]]


def test_an_errand_that_was_given_up_is_not_run() -> None:
    queue = RowQueue(9)
    errand = Errand(lambda: None)
    queue.put(errand)
    assert errand.result.cancel()
    queue.close()
    assert queue.take(OneByOne()) is None


def test_a_wait_without_work_ends_in_idle_and_one_with_work_does_not() -> None:
    queue = RowQueue(9)
    assert queue.take(OneByOne(), 0.001) == Idle()
    queue.put(job())
    assert isinstance(queue.take(OneByOne(), 0.001), list)
    queue.close()
    assert queue.take(OneByOne(), 60) is None


def test_a_closed_queue_gives_what_it_has_and_takes_nothing() -> None:
    queue = RowQueue(9)
    waiting = job()
    queue.put(waiting)
    queue.close()
    with pytest.raises(QueueClosed):
        queue.put(job())
    with pytest.raises(QueueClosed), queue.admit(1):
        pass
    assert take_job(queue) is waiting
    assert queue.take(OneByOne()) is None


def test_a_waiting_consumer_wakes_for_a_job_and_for_the_end() -> None:
    queue = RowQueue(9)
    taken: list[list[Slice] | Errand | Idle | None] = []

    def consume() -> None:
        while (found := queue.take(OneByOne())) is not None:
            taken.append(found)
        taken.append(None)

    consumer = threading.Thread(target=consume)
    consumer.start()
    given = job()
    queue.put(given)
    queue.close()
    consumer.join(60)
    assert taken == [[Slice(given, (0,))], None]


def test_the_counters_tell_what_ran_and_what_waits() -> None:
    queue = RowQueue(9)
    queue.put(job(rows=2))
    queue.ran(rows=3, seconds=0.5)
    state = queue.state()
    assert (state.batches, state.rows, state.capacity) == (1, 3, 9)
    assert state.oldest_ms >= 0

"""The queue: bounded, in order, and blind to what nobody waits for any more."""

import threading

import pytest

from omni_jev_worker.queue import Errand, Job, QueueClosed, QueueFull, RowQueue


def job(rows: int = 1) -> Job:
    return Job(checkpoint="tiny", encoded=None, rows=rows)


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
    assert [queue.take() for _ in jobs] == jobs


def test_an_abandoned_job_is_never_given_to_the_device() -> None:
    queue = RowQueue(9)
    abandoned, wanted = job(), job()
    queue.put(abandoned)
    queue.put(wanted)
    assert abandoned.result.cancel()
    assert queue.take() is wanted


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


def test_a_job_that_runs_can_no_longer_be_abandoned() -> None:
    queue = RowQueue(9)
    queue.put(job())
    taken = queue.take()
    assert taken is not None
    assert not taken.result.cancel()


def test_a_closed_queue_gives_what_it_has_and_takes_nothing() -> None:
    queue = RowQueue(9)
    waiting = job()
    queue.put(waiting)
    queue.close()
    with pytest.raises(QueueClosed):
        queue.put(job())
    with pytest.raises(QueueClosed), queue.admit(1):
        pass
    assert queue.take() is waiting
    assert queue.take() is None


def test_a_waiting_consumer_wakes_for_a_job_and_for_the_end() -> None:
    queue = RowQueue(9)
    taken: list[Job | Errand | None] = []

    def consume() -> None:
        while (found := queue.take()) is not None:
            taken.append(found)
        taken.append(None)

    consumer = threading.Thread(target=consume)
    consumer.start()
    given = job()
    queue.put(given)
    queue.close()
    consumer.join(60)
    assert taken == [given, None]


def test_the_counters_tell_what_ran_and_what_waits() -> None:
    queue = RowQueue(9)
    queue.put(job(rows=2))
    queue.ran(rows=3, seconds=0.5)
    state = queue.state()
    assert (state.batches, state.rows, state.capacity) == (1, 3, 9)
    assert state.oldest_ms >= 0

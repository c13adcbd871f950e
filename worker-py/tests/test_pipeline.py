"""The pipeline: a device that works by itself has the next batch, and nobody waits for that."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

from omni_jev_worker.pipeline import Pipeline
from omni_jev_worker.queue import Errand, Idle, Job, RowQueue, Slice
from taking import OneByOne

LONG = 2048


class Device:
    """Notes what is started, waited for and given out, in order."""

    def __init__(self, queue: RowQueue, *, works_alone: bool = True) -> None:
        self.notes: list[str] = []
        self.on_wait: Callable[[str], None] = lambda _: None
        self.under_way = self.most_under_way = 0
        self.pipeline = Pipeline(queue, self.start, self.give_out, works_alone=lambda: works_alone)

    def start(self, batch: list[Slice]) -> Callable[[], Any]:
        name = batch[0].job.checkpoint
        self.notes.append(f"start {name}")
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)

        def wait() -> Any:
            self.on_wait(name)
            self.under_way -= 1
            self.notes.append(f"done {name}")
            return ["result"]

        return wait

    def give_out(self, batch: list[Slice], results: Sequence[Any]) -> None:
        assert results == ["result"]
        self.notes.append(f"out {batch[0].job.checkpoint}")

    def next(self) -> Errand | Idle | None:
        return self.pipeline.next(OneByOne, 0)


def job(name: str, tokens: int = 64) -> Job:
    return Job(name, None, (tokens,))


def test_the_next_batch_is_started_before_the_last_is_given_out() -> None:
    queue = RowQueue(99)
    device = Device(queue)
    for name in "abc":
        queue.put(job(name))
    assert isinstance(device.next(), Idle)
    assert device.notes == [
        *("start a", "done a", "start b", "out a"),
        *("done b", "start c", "out b", "done c", "out c"),
    ]
    assert device.most_under_way == 1


def test_a_batch_is_started_behind_the_running_one_where_plenty_waits_and_no_third() -> None:
    queue = RowQueue(99)
    device = Device(queue)
    for name in "abcd":
        queue.put(job(name, LONG))
    assert isinstance(device.next(), Idle)
    assert device.notes[:4] == ["start a", "start b", "done a", "out a"]
    assert device.most_under_way == 2
    assert [note for note in device.notes if note.startswith("out")] == [
        *("out a", "out b", "out c", "out d")
    ]


def test_where_the_device_is_this_thread_a_batch_is_given_out_before_the_next_starts() -> None:
    queue = RowQueue(99)
    device = Device(queue, works_alone=False)
    for name in "ab":
        queue.put(job(name, LONG))
    assert isinstance(device.next(), Idle)
    assert device.notes == ["start a", "done a", "out a", "start b", "done b", "out b"]


def test_an_errand_comes_when_all_before_it_has_been_given_out_and_nothing_after() -> None:
    queue = RowQueue(99)
    device = Device(queue)
    errand = Errand(lambda: None)
    for each in (job("a", LONG), job("b", LONG), errand, job("c")):
        queue.put(each)
    assert device.next() is errand
    assert device.notes[-1] == "out b"
    assert isinstance(device.next(), Idle)
    assert device.notes[-1] == "out c"


def test_an_errand_that_comes_while_a_batch_runs_is_not_lost() -> None:
    queue = RowQueue(99)
    device = Device(queue)
    errand = Errand(lambda: None)
    device.on_wait = lambda name: queue.put(errand) if name == "a" else None
    queue.put(job("a"))
    assert device.next() is errand
    assert device.notes == ["start a", "done a", "out a"]


def test_what_was_given_up_while_a_batch_ran_is_not_started() -> None:
    queue = RowQueue(99)
    device = Device(queue)
    unwanted, errand = job("b"), Errand(lambda: None)

    def give_up(name: str) -> None:
        if name == "a":
            queue.put(unwanted)
            queue.put(errand)
            unwanted.result.cancel()

    device.on_wait = give_up
    queue.put(job("a"))
    assert device.next() is errand
    assert device.notes == ["start a", "done a", "out a"]


def test_a_closed_queue_ends_it_after_the_last_answer() -> None:
    queue = RowQueue(99)
    device = Device(queue)
    for name in "ab":
        queue.put(job(name, LONG))
    queue.close()
    assert device.next() is None
    assert device.notes[-1] == "out b"


def test_a_batch_that_comes_from_another_thread_wakes_it() -> None:
    queue = RowQueue(99)
    device = Device(queue)
    given = threading.Event()
    out = device.give_out

    def give_out(batch: list[Slice], results: Sequence[Any]) -> None:
        out(batch, results)
        given.set()

    device.pipeline._give_out = give_out
    thread = threading.Thread(target=lambda: device.pipeline.next(OneByOne, None))
    thread.start()
    queue.put(job("a"))
    assert given.wait(60)
    queue.close()
    thread.join(60)
    assert not thread.is_alive()

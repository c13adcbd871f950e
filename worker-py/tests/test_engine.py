"""The engine with a real model: requests that wait together, idle time, memory, health."""

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tiny_checkpoint
from omni_jev_worker import memory
from omni_jev_worker.app import App
from omni_jev_worker.engine import InferenceFailed
from omni_jev_worker.exits import Refusal
from omni_jev_worker.laya_pass import LayaPass
from omni_jev_worker.model import Model
from omni_jev_worker.pool import CheckpointPool
from omni_jev_worker.routing import Routing
from omni_jev_worker.scores import NotFinite
from running_worker import LONG
from started_engine import Started, starting
from test_answers import QUESTIONS, STATES, assert_close


@pytest.fixture(scope="module")
def started(tiny: Path) -> Iterator[Started]:
    made = Started(tiny)
    yield made
    assert made.engine.stop()


def recorded(started: Started, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The rows of each forward pass from here on."""
    sizes: list[int] = []
    infer = started.model.infer

    def record(batch: Any, *buckets: Any) -> Any:
        sizes.append(sum(len(each.items) for each in batch))
        return infer(batch, *buckets)

    monkeypatch.setattr(started.model, "infer", record)
    return sizes


def test_requests_that_wait_together_run_together_and_get_the_answers_of_single_ones(
    started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = recorded(started, monkeypatch)
    alone = [started.ask(state, QUESTIONS) for state in STATES]
    passes_alone = len(sizes)
    sizes.clear()
    with started.held():
        jobs = [started.job(state, QUESTIONS) for state in STATES]
        for job in jobs:
            started.queue.put(job)
    for job, expected in zip(jobs, alone, strict=True):
        assert_close(started.answers(job), expected)
    assert sum(sizes) == len(STATES) * len(QUESTIONS)
    assert len(sizes) < passes_alone
    assert max(sizes) > len(QUESTIONS)


def test_a_request_that_meets_an_idle_engine_runs_at_once_and_alone(
    started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = recorded(started, monkeypatch)
    for _ in range(3):
        started.ask("the parcel came late")
    assert sizes == [1, 1, 1]


def test_a_request_that_was_given_up_never_reaches_the_model(
    started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = recorded(started, monkeypatch)
    with started.held():
        jobs = [started.job("late"), started.job("late"), started.job("late")]
        for job in jobs:
            started.queue.put(job)
        assert jobs[1].result.cancel()
    assert started.answers(jobs[0])
    assert started.answers(jobs[2])
    assert sizes == [2]


def test_a_request_that_is_given_up_while_it_runs_harms_nobody(
    started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    infer = started.model.infer
    leaving = started.job("late")

    def leave_meanwhile(batch: Any, *buckets: Any) -> Any:
        leaving.result.cancel()
        return infer(batch, *buckets)

    monkeypatch.setattr(started.model, "infer", leave_meanwhile)
    started.queue.put(leaving)
    assert started.ask("the box was open")
    assert leaving.result.cancelled()


def test_a_number_that_is_not_finite_fails_its_request_alone(
    started: Started, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    infer = started.model.infer
    poison = started.job("late")

    def poisoned(batch: Any, *buckets: Any) -> Any:
        results = infer(batch, *buckets)
        bad = [each.items[0]["ids"] is poison.encoded.items[0]["ids"] for each in batch]
        return [NotFinite() if no else result for no, result in zip(bad, results, strict=True)]

    monkeypatch.setattr(started.model, "infer", poisoned)
    with started.held():
        good = started.job("late")
        for job in (good, poison):
            started.queue.put(job)
    assert started.answers(good)
    with pytest.raises(InferenceFailed):
        poison.result.result(LONG)
    assert "not finite" in caplog.text


def test_without_memory_on_a_device_the_answers_are_the_same_and_health_tells(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with starting(tiny) as started:
        expected = started.ask(STATES[0], QUESTIONS)
        model, run = started.model, started.model._laya._pass
        device = "mps"

        def short_of_memory(arrays: Any, *, amp: bool) -> Any:
            if device == "mps":
                raise RuntimeError("MPS backend out of memory")
            return run(arrays, amp=amp)

        def move(to: str) -> Callable[[], None]:
            def moved() -> None:
                nonlocal device
                device = to

            return moved

        monkeypatch.setattr(Model, "device", property(lambda _: device))
        monkeypatch.setattr(Model, "device_bytes", 0)
        monkeypatch.setattr(model._laya, "_pass", short_of_memory)
        monkeypatch.setattr(model, "move_to_cpu", move("cpu"))
        monkeypatch.setattr(model, "return_to_device", move("mps"))
        assert_close(started.ask(STATES[0], QUESTIONS), expected)
        started.settle()
        told = started.engine.snapshot.fallback
        assert (told.count, told.since) == (len(QUESTIONS), None)
        assert told.last_reason == "MPS backend out of memory"
        assert device == "mps"


@pytest.mark.parametrize("required", [False, True])
def test_a_device_without_memory_for_the_warm_up_is_told_or_refused_if_required(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, *, required: bool
) -> None:
    device, run = "mps", LayaPass._pass

    def short_of_memory(laya: LayaPass, arrays: Any, *, amp: bool) -> Any:
        if device == "mps":
            raise RuntimeError("MPS backend out of memory")
        return run(laya, arrays, amp=amp)

    def move_to_cpu(_: Model) -> None:
        nonlocal device
        device = "cpu"

    def no_way_back(_: Model) -> None:
        raise RuntimeError("MPS backend out of memory")

    monkeypatch.setattr("omni_jev_worker.model.available", lambda _: True)
    monkeypatch.setattr(Model, "device", property(lambda _: device))
    monkeypatch.setattr(Model, "device_bytes", 0)
    monkeypatch.setattr(LayaPass, "_pass", short_of_memory)
    monkeypatch.setattr(Model, "move_to_cpu", move_to_cpu)
    monkeypatch.setattr(Model, "return_to_device", no_way_back)
    if required:
        with pytest.raises(Refusal, match="would be on cpu"):
            Started(tiny, device="mps", require_device=True)
        return
    with starting(tiny, device="mps") as started:
        assert started.engine.snapshot.model.device_mismatch
        assert started.engine.snapshot.fallback.since is not None
        assert started.ask("late")


def test_all_lengths_make_few_shapes_and_a_bounded_footprint(tmp_path: Path) -> None:
    folder = tiny_checkpoint.make(tmp_path / "wide", window=256)
    with starting(folder, length_buckets=(32, 64, 128)) as started:
        warm = started.engine.snapshot.memory.lengths_seen
        words = ["the", "parcel", "came", "late", "and", "the", "box", "was", "open"]

        def drive() -> int:
            lengths = set()
            for count in range(240):
                job = started.job(" ".join(words[n % len(words)] for n in range(count)))
                started.queue.put(job)
                job.result.result(LONG)
                lengths |= set(job.lengths)
            started.settle()
            return len(lengths)

        assert drive() > 190
        seen = started.engine.snapshot.memory.lengths_seen
        # The warm-up compares padded and unpadded, which are lengths too.
        assert seen <= warm + 4 <= 9 + 4
        before = memory.footprint_bytes()
        drive()
        assert memory.footprint_bytes() < before + 32 * 2**20
        assert started.engine.snapshot.memory.lengths_seen == seen


def test_padded_inputs_get_the_answers_of_unpadded_ones(tiny: Path, started: Started) -> None:
    with starting(tiny, length_buckets=(48, 96)) as padded:
        assert padded.engine.snapshot.length_buckets == (48, 96, tiny_checkpoint.WINDOW)
        for state in STATES:
            assert_close(padded.ask(state, QUESTIONS), started.ask(state, QUESTIONS))


def test_padding_that_changes_the_answers_is_off_and_said_so(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Model, "padding_agrees", lambda *_: False)
    with starting(tiny, length_buckets=(48, 96)) as started:
        assert started.engine.snapshot.length_buckets == ()
    assert "inputs are not padded" in caplog.text


def test_cached_memory_is_released_past_the_threshold(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with starting(tiny, release_memory=1) as started:
        released: list[None] = []
        monkeypatch.setattr(started.model, "release_memory", lambda: released.append(None))
        started.ask("late")
        started.ask("late")
        started.settle()
        assert len(released) == 1
        assert started.engine.snapshot.memory.releases == 1


def test_an_idle_engine_keeps_warm_if_asked_to(tiny: Path) -> None:
    with starting(tiny, keep_warm=0.1) as started:
        end = time.monotonic() + LONG
        while started.engine.snapshot.kept_warm < 2 and time.monotonic() < end:
            time.sleep(0.02)
        assert started.engine.snapshot.kept_warm >= 2
        assert started.ask("late")
        # What nobody asked for is no answered row.
        assert started.queue.state().rows <= 1


def test_health_answers_while_an_inference_runs(
    started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    running, go_on = threading.Event(), threading.Event()
    infer = started.model.infer

    def slow(batch: Any, *buckets: Any) -> Any:
        running.set()
        assert go_on.wait(LONG)
        return infer(batch, *buckets)

    monkeypatch.setattr(started.model, "infer", slow)
    app = App(
        started.engine,
        started.queue,
        Routing(started.checkpoint),
        CheckpointPool(lambda name: [name], room=0, most_waiting=1),
        instance="the-instance",
        api_key=None,
    )
    job = started.job("late")
    started.queue.put(job)
    assert running.wait(LONG)
    times = []
    try:
        for _ in range(50):
            begun = time.perf_counter()
            body = asyncio.run(_health(app))
            times.append(time.perf_counter() - begun)
    finally:
        go_on.set()
    assert body["status"] == "ready"
    assert not job.result.done() or started.answers(job)
    assert sorted(times)[len(times) // 2] < 0.05
    assert {"depth", "capacity", "oldest_ms", "batches", "rows"} == set(body["queue"])
    assert {"footprint_bytes", "device_bytes", "lengths_seen", "releases"} == set(body["memory"])
    assert {"count", "last_reason", "since"} <= set(body["fallback"])
    assert body["memory"]["footprint_bytes"] > 0


async def _health(app: App) -> dict[str, Any]:
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "GET",
        "path": "/health",
        "raw_path": b"/health",
        "query_string": b"",
        "root_path": "",
        "headers": [],
    }
    await app.asgi(scope, receive, send)
    found: dict[str, Any] = json.loads(b"".join(each.get("body", b"") for each in sent))
    return found

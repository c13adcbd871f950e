"""Checkpoints beside the default: prepared when asked for, evicted, restored; with stand-ins."""

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from omni_jev_worker import child
from omni_jev_worker import pool as pool_module
from omni_jev_worker.exits import BAD_CONFIGURATION, Refusal
from omni_jev_worker.pool import CannotPreload, CheckpointPool
from omni_jev_worker.protocol.problems import Problem
from omni_jev_worker.protocol.request import Request

FAKE = Path(__file__).with_name("fake_child.py")
LONG = 60.0
QUESTIONS = {"q": {"type": "noul", "instructions": "Refund?"}}


class Commands:
    """The command of each checkpoint, and which were asked for."""

    def __init__(self, ways: Mapping[str, Sequence[str]]) -> None:
        self.ways = dict(ways)
        self.started: list[str] = []

    def __call__(self, name: str) -> list[str]:
        self.started.append(name)
        return [sys.executable, str(FAKE), name, *self.ways.get(name, ("good",))]


Test = Callable[[CheckpointPool, Commands], Awaitable[None]]


def with_pool(test: Test, room: int = 1, waiting: int = 10, **ways: Sequence[str]) -> None:
    async def run() -> None:
        commands = Commands(ways)
        pool = CheckpointPool(commands, room=room, most_waiting=waiting)
        pool.serving = True
        try:
            async with asyncio.timeout(LONG):
                await test(pool, commands)
        finally:
            await pool.close()

    asyncio.run(run())


def asked(state: str = "x") -> Request:
    return Request(None, state, QUESTIONS)


async def by(pool: CheckpointPool, name: str, state: str = "x") -> Any:
    return (await pool.decide(name, asked(state)))["answers"]


async def refused(pool: CheckpointPool, name: str, state: str = "x") -> Problem:
    with pytest.raises(Problem) as caught:
        await pool.decide(name, asked(state))
    return caught.value


@pytest.fixture
def fifo(tmp_path: Path) -> str:
    path = str(tmp_path / "fifo")
    os.mkfifo(path)
    return path


def release(fifo: str) -> None:
    """Let who waits at a FIFO go on. Opening it waits for them, so not on this thread."""
    threading.Thread(target=lambda: Path(fifo).write_text("go"), daemon=True).start()


async def until(holds: Callable[[], bool]) -> None:
    """Let the loop run until something holds; the pool's time limit ends what never does."""
    while not holds():
        await asyncio.sleep(0.01)


def test_a_named_checkpoint_is_prepared_and_answers_what_was_asked() -> None:
    async def test(pool: CheckpointPool, commands: Commands) -> None:
        answers = await by(pool, "a", "the state")
        assert answers["by"] == "a"
        assert answers["asked"] == {"state": "the state", "questions": QUESTIONS}
        assert (await by(pool, "a"))["pid"] == answers["pid"]
        assert commands.started == ["a"]
        assert pool.state().models["a"]["checkpoint"] == "of/a"
        assert pool.state().footprint_bytes == 1000

    with_pool(test)


def test_it_is_preparing_until_it_is_ready_and_its_first_requests_share_one_process(
    fifo: str,
) -> None:
    async def test(pool: CheckpointPool, commands: Commands) -> None:
        first = [asyncio.ensure_future(by(pool, "a")) for _ in range(3)]
        await until(lambda: pool.state().preparing == ("a",))
        assert not pool.state().models
        release(fifo)
        assert len({answers["pid"] for answers in await asyncio.gather(*first)}) == 1
        assert pool.state().preparing == ()
        assert list(pool.state().models) == ["a"]

    with_pool(test, a=("held", fifo))


def test_it_goes_on_being_prepared_when_whoever_asked_has_left(fifo: str) -> None:
    async def test(pool: CheckpointPool, commands: Commands) -> None:
        first = asyncio.ensure_future(by(pool, "a"))
        await until(lambda: pool.state().preparing == ("a",))
        first.cancel()
        release(fifo)
        assert (await by(pool, "a"))["by"] == "a"
        assert commands.started == ["a"]

    with_pool(test, a=("held", fifo))


def test_only_so_many_requests_wait_for_one_that_is_being_prepared(fifo: str) -> None:
    async def test(pool: CheckpointPool, commands: Commands) -> None:
        first = [asyncio.ensure_future(by(pool, "a")) for _ in range(2)]
        await asyncio.sleep(0)
        problem = await refused(pool, "a")
        assert problem.status == 503
        assert dict(problem.headers)[b"retry-after"]
        release(fifo)
        await asyncio.gather(*first)

    with_pool(test, waiting=2, a=("held", fifo))


def test_the_least_recently_used_one_makes_room() -> None:
    async def test(pool: CheckpointPool, commands: Commands) -> None:
        for name in ("a", "b", "a", "c"):
            await by(pool, name)
        assert sorted(pool.state().models) == ["a", "c"]
        assert commands.started == ["a", "b", "c"]

    with_pool(test, room=2)


def test_an_eviction_waits_for_the_requests_it_would_cut_off(fifo: str) -> None:
    async def test(pool: CheckpointPool, commands: Commands) -> None:
        await by(pool, "a")
        running = asyncio.ensure_future(by(pool, "a", fifo))
        await asyncio.sleep(0)
        other = asyncio.ensure_future(by(pool, "b"))
        await until(lambda: "a" not in pool.state().models)
        assert not running.done()
        release(fifo)
        assert (await running)["by"] == "a"
        assert (await other)["by"] == "b"

    with_pool(test)


def test_one_on_the_wrong_device_is_a_500_and_what_it_displaced_is_loaded_again() -> None:
    async def test(pool: CheckpointPool, commands: Commands) -> None:
        await by(pool, "a")
        problem = await refused(pool, "b")
        assert problem.status == 500
        assert "b would be on cpu" in problem.detail["message"]
        assert (await by(pool, "a"))["by"] == "a"
        assert commands.started == ["a", "b", "a"]

    with_pool(test, b=("wrong_device",))


def test_one_that_cannot_be_had_is_a_503_that_says_what_and_displaces_nothing() -> None:
    async def test(pool: CheckpointPool, commands: Commands) -> None:
        pid = (await by(pool, "a"))["pid"]
        problem = await refused(pool, "b")
        assert problem.status == 503
        assert dict(problem.headers)[b"retry-after"]
        message = "checkpoint b: the/repository at revision main is not to be had"
        assert problem.detail["message"] == message
        assert (await by(pool, "a"))["pid"] == pid

    with_pool(test, b=("unreachable",))


def test_a_failure_answers_the_next_requests_too_without_another_start() -> None:
    async def test(pool: CheckpointPool, commands: Commands) -> None:
        for _ in range(3):
            assert (await refused(pool, "b")).status == 503
        assert commands.started == ["b"]

    with_pool(test, b=("unreachable",))


@pytest.mark.parametrize("way", ["broken", "crashing"])
def test_the_reason_of_another_failure_is_for_the_log_alone(way: str) -> None:
    async def test(pool: CheckpointPool, commands: Commands) -> None:
        problem = await refused(pool, "b")
        assert problem.status == 503
        assert "log" in problem.detail["message"]
        assert "secret" not in problem.detail["message"]

    with_pool(test, b=(way,))


def test_what_it_answers_to_a_bad_request_is_passed_on() -> None:
    async def test(pool: CheckpointPool, commands: Commands) -> None:
        problem = await refused(pool, "a", "refused")
        assert (problem.status, problem.detail) == (413, {"error_type": "t", "message": "m"})

    with_pool(test)


def test_one_that_dies_fails_its_requests_with_a_503_and_is_started_for_the_next() -> None:
    async def test(pool: CheckpointPool, commands: Commands) -> None:
        pid = (await by(pool, "a"))["pid"]
        assert (await refused(pool, "a", "die")).status == 503
        await until(lambda: "a" not in pool.state().models)
        assert (await by(pool, "a"))["pid"] != pid

    with_pool(test)


def test_whoever_asks_in_the_moment_of_its_end_gets_a_503_and_then_the_next_one() -> None:
    async def test(pool: CheckpointPool, commands: Commands) -> None:
        pid = (await by(pool, "a"))["pid"]
        os.kill(pid, signal.SIGKILL)
        statuses = set()
        while True:
            try:
                answers = await by(pool, "a")
            except Problem as problem:
                statuses.add(problem.status)
                await asyncio.sleep(0)
            else:
                if answers["pid"] != pid:
                    break
        assert statuses <= {503}

    with_pool(test)


def test_one_that_hangs_is_ended_and_started_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "_HEALTH_SECONDS", 0.2)
    monkeypatch.setattr(pool_module, "_LOOK_SECONDS", 0.05)

    async def test(pool: CheckpointPool, commands: Commands) -> None:
        pid = (await by(pool, "a"))["pid"]
        assert (await refused(pool, "a", "hang")).status == 503
        await until(lambda: "a" not in pool.state().models)
        assert (await by(pool, "a"))["pid"] != pid

    with_pool(test)


def test_without_room_for_another_none_is_started() -> None:
    async def test(pool: CheckpointPool, commands: Commands) -> None:
        problem = await refused(pool, "a")
        assert problem.status == 503
        assert "--max-loaded" in problem.detail["message"]
        assert commands.started == []

    with_pool(test, room=0)


def test_preloaded_ones_are_ready_before_anything_is_asked() -> None:
    async def test(pool: CheckpointPool, commands: Commands) -> None:
        await pool.preload(["a", "b"])
        assert list(pool.state().models) == ["a", "b"]

    with_pool(test, room=2)


def test_a_preloaded_one_that_cannot_be_had_is_a_refusal_and_one_that_crashes_is_not() -> None:
    async def test(pool: CheckpointPool, commands: Commands) -> None:
        with pytest.raises(Refusal, match="--preload a: the/repository") as caught:
            await pool.preload(["a"])
        assert caught.value.code == BAD_CONFIGURATION
        with pytest.raises(CannotPreload, match="--preload b"):
            await pool.preload(["b"])

    with_pool(test, a=("unreachable",), b=("crashing",))


def test_closing_ends_every_process_also_one_that_is_being_prepared(fifo: str) -> None:
    pids: list[int] = []

    async def test(pool: CheckpointPool, commands: Commands) -> None:
        pids.append((await by(pool, "a"))["pid"])
        waiting = asyncio.ensure_future(by(pool, "b"))
        await until(lambda: commands.started == ["a", "b"])
        waiting.cancel()

    with_pool(test, room=2, b=("held", fifo))
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)

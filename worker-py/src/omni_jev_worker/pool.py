"""The checkpoints beside the default: prepared when a request needs one, evicted to make room.

Each is a process of its own (`child`). They are prepared one after the other. Room for a new one is
made once its files are there: the least recently used one finishes its requests and ends. Where the
new one then cannot be used, what it displaced is prepared again.
"""

import asyncio
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx2

from omni_jev_worker import log
from omni_jev_worker.child import Child
from omni_jev_worker.child_process import NotStarted
from omni_jev_worker.exits import (
    BAD_CONFIGURATION,
    BAD_FLAGS,
    UNREACHABLE,
    WRONG_DEVICE,
    bad_configuration,
)
from omni_jev_worker.health import Others
from omni_jev_worker.protocol import problems, render
from omni_jev_worker.protocol.problems import Problem
from omni_jev_worker.protocol.request import Request

# How long a failure answers for the next requests, so that they do not each start a process.
_FAILURE_SECONDS: Final = 10.0
_LOOK_SECONDS: Final = 1.0
# Looks that a ready one may leave unanswered, each for seconds.
_MOST_SILENT: Final = 3
# One that ends sooner after it was ready would be started again and again.
_STEADY_SECONDS: Final = 60.0

# What asking a process raises that has ended, or ends meanwhile: the second is httpx2's for a
# client that was closed already, the third that of an answer that was cut.
_ENDED: Final = (httpx2.HTTPError, RuntimeError, ValueError)

CommandOf = Callable[[str], Sequence[str]]
"""Gives the command that serves a checkpoint by its name, without its socket."""


@dataclass(slots=True)
class _Place:
    """One checkpoint that is wanted: being prepared, ready, or failed a moment ago."""

    ready: asyncio.Future[Child]
    child: Child | None = None
    used_at: float = 0.0
    ready_at: float = 0.0
    failed_at: float | None = None
    users: int = 0
    """Requests that wait for it or are being answered by it."""
    unused: asyncio.Event = field(default_factory=asyncio.Event)

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Count a request, so that an eviction waits for it."""
        self.users += 1
        self.unused.clear()
        try:
            yield
        finally:
            self.users -= 1
            if not self.users:
                self.unused.set()


class CheckpointPool:
    """Owns the processes. Used on the event loop alone."""

    def __init__(self, command_of: CommandOf, *, room: int, most_waiting: int) -> None:
        """Take how to start one, and how many may be loaded at a time.

        ``most_waiting`` is how many requests may wait for one that is being prepared.
        """
        self._command_of = command_of
        self._room = room
        self._most_waiting = most_waiting
        self._places: dict[str, _Place] = {}
        self._one_at_a_time = asyncio.Lock()
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._sockets = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = False
        self.serving = False
        """Whether the worker is: until then it is starting, not preparing another checkpoint."""

    async def preload(self, names: Sequence[str]) -> None:
        """Prepare checkpoints before the worker serves.

        Raises `Refusal` or `CannotPreload`: the second where another start may go better.
        """
        for name in names:
            place = self._place(name)
            try:
                await asyncio.shield(place.ready)
            except _Unusable as fault:
                raise fault.refusal() from None

    async def decide(self, name: str, asked: Request) -> dict[str, Any]:
        """Have a checked request answered by a checkpoint. Raises `Problem`.

        Whoever waits may give up: the checkpoint is prepared all the same.
        """
        if not self._room:
            message = f"checkpoint {name} is not loaded: this worker keeps one (--max-loaded 1)"
            raise problems.refused(503, problems.UNAVAILABLE, message)
        place = self._place(name)
        if place.child is None and place.users >= self._most_waiting:
            raise problems.overloaded(f"too many requests wait for checkpoint {name}", 5)
        body = render.to_json({"state": asked.state, "questions": asked.questions})
        with place.in_use():
            try:
                child = await asyncio.shield(place.ready)
            except _Unusable as fault:
                raise fault.problem() from None
            place.used_at = time.monotonic()
            return await _answer(child, body)

    def state(self) -> Others:
        """Give what `/health` tells."""
        models: dict[str, dict[str, Any]] = {}
        footprint = 0
        for name, place in self._places.items():
            if place.child is not None:
                said = place.child.health
                models[name] = next(iter(said.get("models", {}).values()), {})
                footprint += said.get("memory", {}).get("footprint_bytes", 0)
        preparing = tuple(name for name, place in self._places.items() if not place.ready.done())
        return Others(models, preparing, footprint)

    async def recover_device(self) -> str | None:
        """Bring each back to the device it lost: none when all are there, else why one is not."""
        reasons = []
        for place in list(self._places.values()):
            if place.child is not None and _lost_its_device(place.child):
                try:
                    reasons.append(await place.child.recover_device())
                    await place.child.look()
                except _ENDED:
                    reasons.append("its process ended")
        return next((reason for reason in reasons if reason is not None), None)

    async def close(self) -> None:
        """End every process."""
        self._closing = True
        for task in self._tasks:
            task.cancel()
        children = [place.child for place in self._places.values() if place.child is not None]
        await asyncio.gather(*self._tasks, *(c.stop() for c in children), return_exceptions=True)
        if self._folder is not None:
            self._folder.cleanup()

    def _place(self, name: str) -> _Place:
        """Give a checkpoint's place; prepare it where it is not wanted yet."""
        place = self._places.get(name)
        if place is not None and place.failed_at is not None:
            if time.monotonic() - place.failed_at < _FAILURE_SECONDS:
                return place
            place = None
        if place is None:
            place = self._places[name] = _Place(asyncio.get_running_loop().create_future())
            # Its failure is its waiters'; where there are none it is in the log alone.
            place.ready.add_done_callback(lambda future: future.cancelled() or future.exception())
            self._run(self._prepare(name, place))
        return place

    def _run(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _prepare(self, name: str, place: _Place) -> None:
        async with self._one_at_a_time:
            log.info(f"preparing checkpoint {name}", phase="preparing", model=name)
            started = time.monotonic()
            displacing: asyncio.Future[list[str]] = asyncio.ensure_future(_nothing())

            def make_room() -> None:
                nonlocal displacing
                displacing = asyncio.ensure_future(self._make_room())

            child = Child(name, self._command_of(name), self._next_socket())
            try:
                await child.start(make_room)
            except (NotStarted, OSError) as fault:
                self._failed(name, place, fault)
                for displaced in await displacing:
                    log.info(f"checkpoint {displaced} is loaded again", phase="preparing")
                    self._place(displaced)
                return
            except asyncio.CancelledError:
                child.kill()
                place.ready.cancel()
                raise
            await displacing
            place.child = child
            place.used_at = place.ready_at = time.monotonic()
            place.ready.set_result(child)
            self._run(self._watch(name, place, child))
            self._say(f"checkpoint {name} is ready", ms=round(1000 * (time.monotonic() - started)))

    def _failed(self, name: str, place: _Place, fault: Exception) -> None:
        place.failed_at = time.monotonic()
        place.ready.set_exception(_Unusable(name, fault))
        self._say(f"checkpoint {name} cannot be used: {fault}", level="warning")

    def _say(self, message: str, level: str = "info", **fields: Any) -> None:
        """Log the end of a preparation; who watches learns that no other is under way."""
        others = any(not place.ready.done() for place in self._places.values())
        ended = {"phase": "preparing" if others or not self.serving else "ready"}
        log.relay(level, message, **fields, **ended)

    async def _make_room(self) -> list[str]:
        """Evict what has not been used for longest, until one more fits; say what it was."""
        evicted: list[str] = []
        while True:
            ready = {n: p for n, p in self._places.items() if p.child is not None}
            if len(ready) < self._room:
                return evicted
            name = min(ready, key=lambda each: ready[each].used_at)
            evicted.append(name)
            place = self._places.pop(name)
            log.info(f"checkpoint {name} makes room for another", phase="preparing", model=name)
            if place.child is not None:
                if place.users:
                    await place.unused.wait()
                await place.child.stop()

    async def _watch(self, name: str, place: _Place, child: Child) -> None:
        """Keep what is known of a ready one fresh, and start it again if it ends by itself."""
        silent = 0
        while not child.ended.is_set():
            try:
                async with asyncio.timeout(_LOOK_SECONDS):
                    await child.ended.wait()
            except TimeoutError:
                silent = 0 if await child.look() else silent + 1
                if silent == _MOST_SILENT:
                    log.error(f"the process of checkpoint {name} does not answer", model=name)
                    child.kill()
        if self._closing or self._places.get(name) is not place:
            return
        del self._places[name]
        log.error(f"the process of checkpoint {name} ended by itself", model=name)
        if time.monotonic() - place.ready_at >= _STEADY_SECONDS:
            self._place(name)

    def _next_socket(self) -> Path:
        if self._folder is None:
            # Only this user may enter it (0700), so nobody else can ask without the key.
            self._folder = tempfile.TemporaryDirectory(prefix="omni-jev-")
        self._sockets += 1
        return Path(self._folder.name) / f"{self._sockets}.sock"


class CannotPreload(Exception):
    """A checkpoint that was to be preloaded could not be prepared this time."""


class _Unusable(Exception):
    """A checkpoint that could not be prepared."""

    def __init__(self, name: str, fault: Exception) -> None:
        self._name = name
        # Its flag is one that nobody gave.
        self._reason = str(fault).removeprefix(f"--model {name}: ")
        self._kind: str | None = getattr(fault, "kind", None)
        self._code: int | None = getattr(fault, "code", None)
        super().__init__(self._reason)

    def problem(self) -> Problem:
        """Give what a request for it is answered.

        The reason of most failures is for the log alone: it may name folders of this machine.
        """
        if self._kind == WRONG_DEVICE:
            return problems.refused(500, problems.INTERNAL, self._reason)
        reason = self._reason
        if self._kind != UNREACHABLE:
            reason = "it could not be prepared; see the worker's log"
        message = f"checkpoint {self._name}: {reason}"
        return problems.overloaded(message, round(_FAILURE_SECONDS))

    def refusal(self) -> Exception:
        """Give why a worker that was to preload it does not start."""
        reason = f"--preload {self._name}: {self._reason}"
        if self._code in (BAD_FLAGS, BAD_CONFIGURATION):
            return bad_configuration(reason)
        return CannotPreload(reason)


async def _answer(child: Child, body: bytes) -> dict[str, Any]:
    try:
        answer = await child.ask(body)
    except _ENDED:
        message = f"the process of checkpoint {child.name} ended; it is started again"
        raise problems.overloaded(message, 5) from None
    if answer.status == 200:
        return dict(answer.body)
    after = answer.retry_after
    headers = [(b"retry-after", after.encode())] if after is not None else []
    raise Problem(answer.status, answer.body["detail"], headers)


async def _nothing() -> list[str]:
    return []


def _lost_its_device(child: Child) -> bool:
    return bool(child.health.get("device_mismatch"))

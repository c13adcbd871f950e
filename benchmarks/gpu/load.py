"""Load from several processes: clients that ask one after the other, and requests that are due.

A process waits for its connections with `select`, whose timeout is finer than a millisecond, and
reads no more of an answer than whether it is the right one. Each outcome says what share of a core
that took, so that one can see that it was the server that was measured.
"""

from __future__ import annotations

import gc
import multiprocessing
import random
import select
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection as Pipe
from typing import Any

from benchmarks.gpu.connection import Address, Connection
from benchmarks.gpu.outcome import Outcome, fault, merged
from benchmarks.gpu.workload import Item

PROCESSES = 4
MOST_CONNECTIONS = 240
"""Of a process with due requests: `select` takes a thousand files, the frontend 512 in flight."""
_OPENED = 32
_HEAD_START = 0.1


def poisson(rate: float, seconds: float, seed: int) -> list[float]:
    """Give the moments, from 0, of arrivals that come at random, so many a second on average."""
    chance = random.Random(seed)
    moments: list[float] = []
    moment = chance.expovariate(rate)
    while moment < seconds:
        moments.append(moment)
        moment += chance.expovariate(rate)
    return moments


def one_client(address: Address, items: Iterable[Item], warm: int, seconds: float) -> Outcome:
    """Ask one request after the other from this thread; the first `warm` do not count.

    Ends early once it took so long, with what it has then.
    """
    outcome = Outcome()
    connection = Connection(address)
    gc.disable()
    begun, cpu = time.perf_counter(), time.process_time()
    try:
        for number, item in enumerate(items):
            sent = time.perf_counter()
            reply = connection.exchange(item.request)
            now = time.perf_counter()
            wrong = fault(item, reply)
            if wrong is not None:
                outcome.errors[wrong] += 1
            elif number >= warm:
                outcome.times.append(now - sent)
            if now - begun > seconds:
                break
    except OSError as error:
        outcome.errors[type(error).__name__] += 1
    finally:
        gc.enable()
        connection.close()
    spent = time.perf_counter() - begun
    outcome.rate = len(outcome.times) / spent
    outcome.generator = [(time.process_time() - cpu) / spent]
    return outcome


@dataclass
class _Asked:
    item: Item
    since: float
    """When it was sent, or was due."""


class _Clients:
    """Connections, and what is under way on each."""

    def __init__(self, address: Address, count: int) -> None:
        self._address = address
        self.free = deque(Connection(address) for _ in range(count))
        self.busy: dict[Connection, _Asked] = {}
        self.outcome = Outcome()

    @property
    def count(self) -> int:
        return len(self.free) + len(self.busy)

    def add(self) -> None:
        self.free.append(Connection(self._address))

    def ask(self, item: Item, since: float) -> None:
        """Send a request on the connection that has been free for the longest."""
        connection = self.free.popleft()
        try:
            # Servers end what is idle for seconds, uvicorn for five; a client would not use it.
            connection.refresh()
            connection.send(item.request)
        except OSError as error:
            self._failed(connection, error)
        else:
            self.busy[connection] = _Asked(item, since)

    def collect(self, timeout: float) -> list[float]:
        """Wait for answers; the times of the right ones. Their connections are free again."""
        readable, _, _ = select.select(list(self.busy), [], [], max(0.0, timeout))
        times = []
        for connection in readable:
            try:
                reply = connection.receive()
            except OSError as error:
                del self.busy[connection]
                self._failed(connection, error)
                continue
            if reply is None:
                continue
            asked = self.busy.pop(connection)
            wrong = fault(asked.item, reply)
            if wrong is None:
                times.append(time.monotonic() - asked.since)
            else:
                self.outcome.errors[wrong] += 1
            if reply.closes:
                self._reopen(connection)
            else:
                self.free.append(connection)
        self.outcome.times += times
        return times

    def _failed(self, connection: Connection, error: OSError) -> None:
        self.outcome.errors[type(error).__name__] += 1
        self._reopen(connection)

    def _reopen(self, connection: Connection) -> None:
        try:
            connection.reopen()
        except OSError as error:
            self.outcome.errors[f"no connection: {type(error).__name__}"] += 1
        else:
            self.free.append(connection)

    def close(self) -> None:
        for connection in (*self.free, *self.busy):
            connection.close()


def closed(
    clients: _Clients, begin: float, items: Sequence[Item], seconds: float, grace: float
) -> None:
    """Each client asks the next request as soon as it has an answer, until the time is over."""
    end = begin + seconds
    waiting = deque(items)
    answered = 0
    last = begin
    while time.monotonic() < end and (waiting or clients.busy) and clients.count:
        while waiting and clients.free:
            clients.ask(waiting.popleft(), time.monotonic())
        answered += len(clients.collect(end - time.monotonic()))
        last = time.monotonic()
    clients.outcome.rate = answered / max(1e-9, min(end, last) - begin)
    _let_finish(clients, time.monotonic() + grace)


def due(
    clients: _Clients,
    begin: float,
    items: Sequence[Item],
    moments: Sequence[float],
    grace: float,
) -> None:
    """Each request is asked when it is due, whatever became of those before it."""
    outcome = clients.outcome
    waiting: deque[tuple[float, Item]] = deque(
        (begin + moment, item) for moment, item in zip(moments, items, strict=True)
    )
    end = begin + (moments[-1] if moments else 0.0) + grace
    while (waiting or clients.busy) and (now := time.monotonic()) < end:
        while waiting and waiting[0][0] <= now:
            if not clients.free:
                if clients.count >= MOST_CONNECTIONS:
                    break
                clients.add()
            moment, item = waiting.popleft()
            clients.ask(item, moment)
            outcome.late.append(time.monotonic() - moment)
        comes = end
        if waiting and (waiting[0][0] > now or clients.free):
            comes = waiting[0][0]
        clients.collect(comes - time.monotonic())
    outcome.unfinished += len(waiting)
    outcome.rate = len(outcome.times) / max(1e-9, time.monotonic() - begin)
    _let_finish(clients, end)


def _let_finish(clients: _Clients, end: float) -> None:
    while clients.busy and (left := end - time.monotonic()) > 0:
        clients.collect(left)
    clients.outcome.unfinished += len(clients.busy)


def _generate(
    pipe: Pipe, address: Address, connections: int, loop: Callable[..., None], arguments: Any
) -> None:
    """What a process does: connect, wait for the beginning, ask, hand its outcome over."""
    try:
        clients = _Clients(address, connections)
        pipe.send("connected")
        begin = pipe.recv()
        gc.disable()
        time.sleep(max(0.0, begin - time.monotonic()))
        cpu = time.process_time()
        loop(clients, begin, *arguments)
        spent = time.monotonic() - begin
        clients.outcome.generator = [(time.process_time() - cpu) / spent]
        clients.close()
        pipe.send(clients.outcome)
    except Exception as error:
        pipe.send(f"{type(error).__name__}: {error}")


def _together(
    address: Address,
    connections: int,
    loop: Callable[..., None],
    arguments: Sequence[Any],
    seconds: float,
) -> Outcome:
    """Run one process for each of the arguments, all beginning at once."""
    spawning = multiprocessing.get_context("spawn")
    started = []
    try:
        for each in arguments:
            ours, theirs = spawning.Pipe()
            made = spawning.Process(
                target=_generate, args=(theirs, address, connections, loop, each), daemon=True
            )
            made.start()
            theirs.close()
            started.append((made, ours))
        for _, pipe in started:
            _heard(pipe, 60.0)
        begin = time.monotonic() + _HEAD_START
        for _, pipe in started:
            pipe.send(begin)
        return merged([_heard(pipe, seconds + 60.0) for _, pipe in started])
    finally:
        for made, _ in started:
            made.join(timeout=5)
            made.kill()


def _heard(pipe: Any, seconds: float) -> Any:
    """Wait for what a process says; raises `RuntimeError` if that is not what it should be."""
    if not pipe.poll(seconds):
        raise RuntimeError("a process of the load says nothing")
    try:
        said = pipe.recv()
    except EOFError:
        raise RuntimeError("a process of the load died") from None
    if isinstance(said, str) and said != "connected":
        raise RuntimeError(f"a process of the load failed: {said}")
    return said


def busy_clients(
    address: Address,
    items: Sequence[Item],
    clients: int,
    seconds: float,
    *,
    processes: int = PROCESSES,
    grace: float = 5.0,
) -> Outcome:
    """Keep so many clients busy until the time or the requests are over; each is asked once."""
    parts = [(items[number::processes], seconds, grace) for number in range(processes)]
    return _together(address, clients // processes, closed, parts, seconds + grace)


def arrivals(
    address: Address,
    items: Sequence[Item],
    moments: Sequence[float],
    *,
    processes: int = PROCESSES,
    grace: float = 5.0,
) -> Outcome:
    """Ask each request at its moment; times count from then. Waits `grace` seconds for the last."""
    parts = [
        (items[number::processes], moments[number::processes], grace) for number in range(processes)
    ]
    return _together(address, _OPENED, due, parts, (moments[-1] if moments else 0.0) + grace)

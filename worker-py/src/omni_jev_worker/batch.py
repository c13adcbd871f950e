"""The batch endpoint: the same questions about several states, each answered on its own.

Every state is a request of its own to the queue, so that the engine puts their rows together with
those of others, and one that cannot be answered harms no other.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from omni_jev_worker.decisions import Decision
from omni_jev_worker.protocol.problems import Problem
from omni_jev_worker.protocol.request import Batch, Request

# A batch takes so much of the queue at a time, so that it neither fills it nor refuses itself.
_SHARE: Final = 4
_OVERLOADED: Final = 503
_MISDIRECTED: Final = 421

Decide = Callable[[Request], Awaitable[Decision]]


def width(capacity: int, rows: int) -> int:
    """Say how many states of so many rows may be in a queue of that capacity at a time."""
    return max(1, capacity // _SHARE // max(1, rows))


async def decide_each(batch: Batch, decide: Decide, width: int) -> list[dict[str, Any] | Problem]:
    """Answer each state, ``width`` at a time, and give a decision or a problem in its place.

    Raises the 503 where the worker has no room for any of them: its ``Retry-After`` is for all; and
    the 421 where it does not take one of them, since another worker may take all.
    """
    room = asyncio.Semaphore(width)

    async def one(state: Any) -> dict[str, Any] | Problem:
        if isinstance(state, Problem):
            return state
        async with room:
            try:
                return (await decide(Request(batch.model, state, batch.questions))).body
            except Problem as problem:
                return problem

    # A group, so that none goes on when this is cancelled.
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(state)) for state in batch.states]
    results = [task.result() for task in tasks]
    misdirected = [r for r in results if isinstance(r, Problem) and r.status == _MISDIRECTED]
    if misdirected:
        raise misdirected[0]
    refused = [r for r in results if isinstance(r, Problem) and r.status == _OVERLOADED]
    if refused and len(refused) == len(results):
        raise refused[0]
    return results

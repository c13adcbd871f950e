"""Keeps a device busy: the next batch is prepared, and started, before the last is given out.

A device that works by itself (a GPU) would otherwise stand still while rows are laid out for it and
while answers leave. Where there is plenty, a second batch is started behind the running one.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, cast

from omni_jev_worker.queue import Errand, Former, Idle, RowQueue, Slice

# Waiting tokens that are worth a pass of their own behind the running one.
_PLENTY: Final = 2048

Wait = Callable[[], Any]


@dataclass(frozen=True, slots=True)
class _Running:
    batch: list[Slice]
    wait: Wait


class Pipeline:
    """Takes batches from a queue, at most two at a time. Used by the engine's thread alone."""

    def __init__(
        self,
        queue: RowQueue,
        start: Callable[[list[Slice]], Wait],
        give_out: Callable[[list[Slice], Any], None],
        *,
        works_alone: Callable[[], bool],
    ) -> None:
        """Take how a batch is started and given out; what is between is waiting.

        ``works_alone`` says whether the device works while this thread does something else. Where
        it does not, a batch is given out before the next is started.
        """
        self._works_alone = works_alone
        self._queue = queue
        self._start = start
        self._give_out = give_out
        self._running: deque[_Running] = deque()

    def next(
        self, former: Callable[[], Former], idle_seconds: float | None
    ) -> Errand | Idle | None:
        """Run batches until something else comes; none when the queue has been closed.

        ``former`` gives what forms the next batch, which may be another after each. All batches
        have been given out by then.
        """
        while True:
            found: Any = self._take(former, idle_seconds) if self._has_room() else _NOTHING
            if found is _NOTHING or (self._running and not isinstance(found, list | Errand)):
                found = self._finish_first(former)
            if isinstance(found, list):
                self._begin(found)
            elif isinstance(found, Errand):
                while self._running:
                    self._finish_first(None)
                return found
            elif found is not _NOTHING:
                return cast("Idle | None", found)

    def _has_room(self) -> bool:
        if len(self._running) == 1:
            return self._works_alone() and self._queue.waiting_tokens() >= _PLENTY
        return not self._running

    def _take(self, former: Callable[[], Former], idle_seconds: float | None) -> Any:
        return self._queue.take(former(), 0 if self._running else idle_seconds)

    def _begin(self, batch: list[Slice]) -> None:
        self._running.append(_Running(batch, self._start(batch)))

    def _finish_first(self, former: Callable[[], Former] | None) -> Any:
        """Give out the first batch, and start the next before; an errand that comes is given."""
        first = self._running.popleft()
        results = first.wait()
        found: Any = _NOTHING
        ahead = former is not None and not self._running and self._works_alone()
        if former is not None and ahead and self._queue.waiting_tokens():
            found = self._queue.take(former(), 0)
            if isinstance(found, list):
                self._begin(found)
        self._give_out(first.batch, results)
        return found if isinstance(found, Errand) else _NOTHING


_NOTHING: Final = object()

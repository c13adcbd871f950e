"""The one thread that reads texts, the event loop beside it, and how results get back to it.

Tokenizing and finding out a language take time that grows with the text, so they have a thread of
their own. A short text that comes while nothing else is under way is read on the event loop: that
takes less time than two changes of thread.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Final

# Some 800 tokens, about a millisecond, in which nothing else waits.
_SHORT: Final = 4096

Work = Callable[[], None]
"""What reads one request. It must not raise."""


class Reader:
    """Reads requests one at a time, in the order of their arrival. Used on the event loop alone."""

    def __init__(self) -> None:
        self._waiting: SimpleQueue[Work] = SimpleQueue()
        # Whoever reads holds it: the tokenizer and its cache are for one thread at a time.
        self._reading = threading.Lock()
        self._thread: threading.Thread | None = None

    def read(self, work: Work, *, characters: int | None, alone: bool) -> None:
        """Read a request of so many characters: now, or when its turn comes.

        ``alone`` says that no other request is under way.
        """
        short = characters is not None and characters <= _SHORT
        # The lock is not waited for: a long text may be read right now.
        if alone and short and self._waiting.empty() and self._reading.acquire(blocking=False):
            try:
                work()
            finally:
                self._reading.release()
            return
        self._waiting.put(work)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="read", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while True:
            work = self._waiting.get()
            with self._reading:
                work()


class Landing:
    """Brings futures of one event loop to their end from other threads, many with one wake-up."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._landed: deque[asyncio.Future[None]] = deque()
        self._woken = False

    def land(self, future: "asyncio.Future[None]") -> None:
        """End a future, from any thread. One that has ended already is left alone."""
        self._landed.append(future)
        # Whoever finds it set comes before `_wake` takes it back, and so before it empties the
        # queue.
        if not self._woken:
            self._woken = True
            # A loop that has ended has nobody who waits.
            with suppress(RuntimeError):
                self.loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        self._woken = False
        while self._landed:
            future = self._landed.popleft()
            if not future.done():
                future.set_result(None)

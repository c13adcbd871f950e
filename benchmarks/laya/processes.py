"""What a server's processes hold of the machine's memory, and when."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

_PROC: Final = Path("/proc")
EVERY_S: Final = 0.5


def tree(roots: Sequence[int], parents: Mapping[int, int]) -> list[int]:
    """Give the processes and all that they started; `parents` are all processes' by their id."""
    found = [each for each in roots if each in parents]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found


def parents() -> dict[int, int]:
    """Give the parent of each process of this machine."""
    if sys.platform == "linux":
        return _parents_of_linux()
    told = subprocess.run(
        ["ps", "-axo", "pid=,ppid="], capture_output=True, text=True, timeout=10, check=False
    )
    pairs = (line.split() for line in told.stdout.splitlines())
    return {int(pair[0]): int(pair[1]) for pair in pairs if len(pair) == 2}


def _parents_of_linux() -> dict[int, int]:
    found = {}
    for folder in _PROC.iterdir():
        if folder.name.isdigit():
            try:
                # After the command's name in parentheses, which may hold anything.
                stat = (folder / "stat").read_text(errors="replace")
                found[int(folder.name)] = int(stat.rpartition(")")[2].split()[1])
            except (OSError, ValueError, IndexError):
                continue
    return found


class Held(NamedTuple):
    """What one process holds, in bytes."""

    own: int
    """Its own memory; on macOS the footprint, with what Metal has allocated."""
    files: int = 0
    """Of files that it has mapped (libraries, weights), what is in memory."""


def held(process: int) -> Held:
    """Look at one process; nothing if it is gone."""
    if sys.platform == "darwin":
        from omni_jev_worker.memory import footprint_of_macos

        return Held(footprint_of_macos(process))
    try:
        return resident((_PROC / str(process) / "status").read_text(errors="replace"))
    except OSError:
        return Held(0)


def resident(status: str) -> Held:
    """Read a process's `status` as the kernel of Linux tells it."""
    found = {}
    for line in status.splitlines():
        name, _, value = line.partition(":")
        if name in ("RssAnon", "RssFile", "RssShmem"):
            found[name] = int(value.split()[0]) * 1024
    return Held(found.get("RssAnon", 0) + found.get("RssShmem", 0), found.get("RssFile", 0))


def held_by(roots: Sequence[int]) -> int:
    """Give the bytes that processes and all that they started hold together.

    Files that several have mapped are in memory once: those of the process with most of them count.
    What else runs on the machine changes nothing of it, as it would a share of each page.
    """
    parts = [held(each) for each in tree(roots, parents())]
    return sum(part.own for part in parts) + max((part.files for part in parts), default=0)


class MemoryWatch:
    """Samples what processes hold, all the time within the block."""

    def __init__(self, roots: Sequence[int], every: float = EVERY_S) -> None:
        self._roots = roots
        self._every = every
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._begun = time.monotonic()
        self.phase = "start"
        """What is being done, which each sample notes."""
        self.paused = False
        """Whether no sample is taken by itself: while this process times requests."""
        self.samples: list[dict[str, Any]] = []

    def sample(self) -> int:
        """Take a sample now; the bytes."""
        taken = held_by(self._roots)
        second = round(time.monotonic() - self._begun, 2)
        self.samples.append({"second": second, "bytes": taken, "phase": self.phase})
        return taken

    def _watch(self) -> None:
        while not self._end.wait(self._every):
            if not self.paused:
                self.sample()

    def __enter__(self) -> Self:
        self._begun = time.monotonic()
        if self._roots:
            self.sample()
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end.set()
        if self._thread.is_alive():
            self._thread.join()

"""What the process holds of memory, when to give some back, and what "out of memory" looks like."""

import ctypes
import mmap
import os
import sys
from functools import cache
from types import TracebackType
from typing import Final

from omni_jev_worker.faults import one_line

# As torch's backends and the system's allocators word it.
_WORDS: Final = ("out of memory", "not enough memory", "allocate memory", "alloc_failed")

# What must have been added since the last release before the next is worth its cost.
_LEAST_GROWTH: Final = 32 * 1024 * 1024


class OutOfMemory(Exception):
    """A forward pass did not fit into memory; the text is torch's, which quotes no client."""


def out_of_memory(fault: BaseException) -> bool:
    """Say whether an exception of torch means that memory ran out."""
    if isinstance(fault, MemoryError):
        return True
    # By name: this module is imported before torch may be.
    if any(kind.__name__ == "OutOfMemoryError" for kind in type(fault).__mro__):
        return True
    text = str(fault).lower()
    return isinstance(fault, RuntimeError) and any(words in text for words in _WORDS)


class MemoryWatch:
    """Keep an end of memory inside the block from leaving it, to be raised as our own after it.

    While an exception is handled it holds all that its frames hold, the memory of the failed pass
    among it. Whoever tries again in smaller parts must not do so before that is gone.
    """

    shortage = OutOfMemory("no memory")
    """What to raise after the block, which ends there only where memory ran out."""

    def __enter__(self) -> "MemoryWatch":
        """Begin the block."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        """Swallow an end of memory."""
        if fault is None or not out_of_memory(fault):
            return False
        self.shortage = OutOfMemory(one_line(str(fault)) or type(fault).__name__)
        return True


def footprint_bytes() -> int:
    """Read the memory that the system counts for this process, in bytes; 0 where it does not tell.

    On Linux the resident set, which holds nothing of a CUDA device; on macOS the footprint, which
    holds what Metal has allocated.
    """
    if sys.platform == "darwin":
        return footprint_of_macos(os.getpid())
    try:
        return int(os.pread(_statm(), 200, 0).split()[1]) * mmap.PAGESIZE
    except (OSError, ValueError, IndexError):
        return 0


@cache
def _statm() -> int:
    """Give what is read after every batch: to open it each time takes longer than a small one."""
    return os.open("/proc/self/statm", os.O_RDONLY)


def give_back_to_system() -> None:
    """Give the memory that the C library keeps for itself back to the system, where it can."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)


class Releases:
    """Decides when a device's cached memory is released, and counts how often."""

    def __init__(self, threshold: int | None) -> None:
        """Take the footprint in bytes past which memory is released; none never releases."""
        self._threshold = threshold
        self._floor = 0
        self.count = 0

    def due(self, footprint: int) -> bool:
        """Say whether to release now, at a footprint in bytes.

        What a release left is what the process needs: it is not tried again before more is added,
        or a threshold under that need would release after every batch.
        """
        if self._threshold is None or footprint <= self._threshold:
            return False
        return self._floor == 0 or footprint > self._floor + _LEAST_GROWTH

    def done(self, footprint: int) -> None:
        """Note a release and the footprint that it left, in bytes."""
        self.count += 1
        self._floor = max(1, footprint)


class _Usage(ctypes.Structure):
    """``struct rusage_info_v0`` of macOS's ``libproc.h``."""

    _fields_ = (
        ("uuid", ctypes.c_uint8 * 16),
        ("times_and_wakeups", ctypes.c_uint64 * 4),
        ("pageins", ctypes.c_uint64),
        ("wired_size", ctypes.c_uint64),
        ("resident_size", ctypes.c_uint64),
        ("phys_footprint", ctypes.c_uint64),
        ("start_and_exit", ctypes.c_uint64 * 2),
    )


def footprint_of_macos(process: int) -> int:
    """Read what macOS counts for a process, with what Metal has allocated, in bytes; or 0."""
    usage = _Usage()
    try:
        failed = ctypes.CDLL("libproc.dylib").proc_pid_rusage(process, 0, ctypes.byref(usage))
    except (OSError, AttributeError):
        return 0
    return 0 if failed else int(usage.phys_footprint)

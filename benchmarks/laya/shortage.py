"""Ways to run a device out of memory while a worker serves on it, and to give it back.

    python benchmarks/laya/shortage.py LEAVE_MIB

As a program it takes all memory of a CUDA device but so much, says so, and holds it until its
standard input ends.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

MIB: Final = 1024 * 1024
_START_SECONDS: Final = 120.0


@contextmanager
def on_cuda(leave_mib: int) -> Iterator[None]:
    """Take a CUDA device's memory in another process, within the block. Raises `OSError`."""
    command = [sys.executable, str(Path(__file__).resolve()), str(leave_mib)]
    with subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as hog:
        try:
            if hog.stdout is None or not hog.stdout.readline().startswith("holding"):
                raise OSError("the process that takes the device's memory did not start")
            yield
        finally:
            if hog.stdin is not None:
                hog.stdin.close()
            try:
                hog.wait(timeout=_START_SECONDS)
            except subprocess.TimeoutExpired:
                hog.kill()


@contextmanager
def simulated(flag: Path) -> Iterator[None]:
    """Let a worker of `fallback_worker.py` run out of memory within the block."""
    flag.touch()
    try:
        yield
    finally:
        flag.unlink()


def main() -> None:
    """Take the memory and hold it."""
    import torch

    leave = int(sys.argv[1]) * MIB
    held = []
    size = 1024 * MIB
    while size >= MIB:
        free = torch.cuda.mem_get_info()[0]
        if free - size < leave:
            size //= 2
            continue
        try:
            held.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
        except torch.OutOfMemoryError:
            size //= 2
    print(f"holding {sum(each.numel() for each in held) // MIB} MiB", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()

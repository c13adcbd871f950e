"""Ways to run a device out of memory while a worker serves on it, and to give it back.

    python benchmarks/laya/shortage.py LEAVE_MIB

As a program it takes all memory of a CUDA device but so much, says so, and holds it until its
standard input ends; each line there is how much it leaves from then on.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

MIB: Final = 1024 * 1024
_START_SECONDS: Final = 120.0
_PROGRAM: Final = (sys.executable, str(Path(__file__).resolve()))

if TYPE_CHECKING:
    import torch


class Hog:
    """The process that holds a CUDA device's memory."""

    def __init__(self, process: subprocess.Popen[str], leave_mib: int) -> None:
        self._process = process
        self._leave = leave_mib
        self._hear()

    def more(self) -> bool:
        """Leave half as much; false where nothing was left already. Raises `OSError`."""
        if self._leave == 0 or self._process.stdin is None:
            return False
        self._leave //= 2
        self._process.stdin.write(f"{self._leave}\n")
        self._process.stdin.flush()
        self._hear()
        return True

    def _hear(self) -> None:
        out = self._process.stdout
        if out is None or not out.readline().startswith("holding"):
            raise OSError("the process that takes the device's memory did not take it")


@contextmanager
def on_cuda(leave_mib: int, program: Sequence[str] = _PROGRAM) -> Iterator[Hog]:
    """Take a CUDA device's memory in another process, within the block. Raises `OSError`."""
    command = [*program, str(leave_mib)]
    with subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as hog:
        try:
            yield Hog(hog, leave_mib)
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
    """Take the memory and hold it; a line of standard input says how much is left from then on."""
    held: list[torch.Tensor] = []
    leave: str | None = sys.argv[1]
    while leave:
        _take_all_but(int(leave) * MIB, held)
        print(f"holding {sum(each.numel() for each in held) // MIB} MiB", flush=True)
        leave = sys.stdin.readline()


def _take_all_but(leave: int, held: list[torch.Tensor]) -> None:
    import torch

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


if __name__ == "__main__":
    main()

"""A worker whose answers become others while it runs, and then the right ones again."""

import array
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def overwritten(artifacts: Path) -> Iterator[None]:
    """Have other numbers in the one onnx artifact of a folder, in place, for a while.

    ONNX Runtime maps that file, so that a worker which has loaded it computes with what is there.
    """
    (numbers,) = artifacts.glob("*/onnx-any-*/weights.bin")
    right = numbers.read_bytes()
    wrong = array.array("I", right)
    wrong.reverse()
    try:
        _write(numbers, wrong.tobytes())
        yield
    finally:
        _write(numbers, right)


def _write(path: Path, content: bytes) -> None:
    with path.open("r+b") as file:
        file.write(content)

"""A worker whose answers become others while it runs, and then the right ones again."""

import array
import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def overwritten(artifacts: Path) -> Iterator[None]:
    """Have other numbers in the one onnx artifact of a folder, in place, for a while.

    ONNX Runtime maps that file, so that a worker which has loaded it computes with what is there.
    """
    (numbers,) = artifacts.glob("*/onnx-any-*/weights.bin")
    # The same file to the end, whatever a start has put in its place meanwhile.
    with numbers.open("r+b", buffering=0) as file:
        right = file.read()
        wrong = array.array("I", right)
        wrong.reverse()
        try:
            _write(file, wrong.tobytes())
            yield
        finally:
            _write(file, right)


def _write(file: io.FileIO, content: bytes) -> None:
    file.seek(0)
    assert file.write(content) == len(content)

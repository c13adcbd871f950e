"""Rows to the numbers that a device gets, in one piece of memory of one of few sizes."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from omni_jev_worker.buckets import Buckets, Shape
from omni_jev_worker.collate import Item, exact
from omni_jev_worker.network.attention import Attention, Kernel, Padded, Unpadded
from omni_jev_worker.network.network import Inputs
from omni_jev_worker.network.parts import Tensor

Numbers = NDArray[np.int32]
Array = TypeVar("Array", Numbers, Tensor)

# A pass of fewer tokens takes as long. Each of the others is at most half again the one before,
# and a third up to the usual window, where one row is a batch.
_TOKENS: Final = (
    *(32, 64, 96, 128, 160, 192, 256, 320, 384, 448, 512),
    *(640, 768, 1024, 1280, 1536, 2048, 2560, 3072, 4096, 5120, 6144, 8192, 12288, 16384),
)
_ROWS: Final = (1, 4, 16, 64)
# Few: what is computed for an option that is not there is next to nothing.
_OPTIONS: Final = (16, 64, 255)
# Of a row, on average.
_LEAST_TOKENS: Final = 16


class Layout(Protocol):
    """How rows lie in memory. ``shape.length`` is what the layout says it is."""

    def shape(self, items: Sequence[Item]) -> Shape:
        """Give the sizes that at least one row is given, none smaller than it needs."""

    def size(self, shape: Shape) -> int:
        """Count the numbers of a batch of these sizes, each an int32."""

    def fill(self, numbers: Numbers, shape: Shape, items: Sequence[Item]) -> None:
        """Write rows."""

    def read(self, numbers: Tensor, shape: Shape) -> tuple[Inputs, Attention]:
        """Give the network its inputs; they are views of the numbers, wherever these are."""

    def usual(self) -> Iterator[Shape]:
        """Give the shapes that most batches have, the most frequent first."""

    def samples(self) -> tuple[Shape, Shape]:
        """Give a shape of one row and one of several."""


class UnpaddedLayout:
    """Rows one after the other: ``shape.length`` is the tokens of all rows together."""

    def __init__(self, window: int, reach: int, kernel: Kernel) -> None:
        """Take the longest row's length, how far sliding attention reaches, and what attends."""
        self._kernel = kernel
        self._window = window
        self._reach = reach
        self._buckets = Buckets(lengths=_TOKENS, rows=_ROWS, options=_OPTIONS)

    def shape(self, items: Sequence[Item]) -> Shape:
        """Give the sizes of a batch."""
        tokens = sum(len(item["ids"]) for item in items)
        shape = self._buckets.shape(replace(exact(items), length=tokens))
        # Many rows of next to nothing are rare: they have the shape of somewhat longer ones.
        return replace(shape, length=max(shape.length, _LEAST_TOKENS * shape.rows))

    def size(self, shape: Shape) -> int:
        """Count the numbers of a batch."""
        return 3 * shape.length + (shape.rows + 1) + shape.rows * (2 + shape.options)

    def fill(self, numbers: Numbers, shape: Shape, items: Sequence[Item]) -> None:
        """Write rows; what is past them is a row of no tokens, or a token of no row."""
        ids, positions, types, ends, firsts, counts, options = self._split(numbers, shape)
        lengths = [len(item["ids"]) for item in items]
        numbers.fill(0)
        at = 0
        for row, (item, length) in enumerate(zip(items, lengths, strict=True)):
            end = at + length
            ids[at:end] = item["ids"]
            positions[at:end] = _PLACES[:length]
            types[at:end] = item["qtype"]
            markers = item["markers"]
            firsts[row], counts[row] = at, len(markers)
            first = row * shape.options
            options[first : first + len(markers)] = np.asarray(markers) + at
            ends[row + 1] = at = end
        ends[len(items) + 1 :] = at

    def read(self, numbers: Tensor, shape: Shape) -> tuple[Inputs, Attention]:
        """Give the network its inputs."""
        ids, positions, types, ends, firsts, counts, options = self._split(numbers, shape)
        inputs = _inputs(ids, positions, types, firsts, counts, options, shape)
        longest = min(self._window, shape.length)
        return inputs, Unpadded(ends, longest, self._reach, self._kernel)

    def usual(self) -> Iterator[Shape]:
        """Give one row of each length first, then several."""
        longest = self._buckets.length(self._window)
        for rows in _ROWS:
            for tokens in _TOKENS:
                if _LEAST_TOKENS * rows <= tokens <= min(8192, rows * longest):
                    yield Shape(rows, tokens, _OPTIONS[0])

    def samples(self) -> tuple[Shape, Shape]:
        """Give a shape of one row and one of several."""
        return Shape(1, 64, _OPTIONS[0]), Shape(_ROWS[1], 256, _OPTIONS[0])

    def _split(self, numbers: Array, shape: Shape) -> list[Array]:
        tokens, rows = shape.length, shape.rows
        return _cut(numbers, (tokens, tokens, tokens, rows + 1, rows, rows, rows * shape.options))


class PaddedLayout:
    """Rows of one padded length, which is ``shape.length``."""

    def __init__(self, buckets: Buckets, padding: int, reach: int, compute: torch.dtype) -> None:
        """Take the sizes to pad to, the padding token, attention's reach and type."""
        self._buckets = buckets
        self._padding = padding
        self._reach = reach
        self._compute = compute

    def shape(self, items: Sequence[Item]) -> Shape:
        """Give the sizes of a batch."""
        return self._buckets.shape(exact(items))

    def size(self, shape: Shape) -> int:
        """Count the numbers of a batch."""
        return 3 * shape.rows * shape.length + shape.rows * (3 + shape.options)

    def fill(self, numbers: Numbers, shape: Shape, items: Sequence[Item]) -> None:
        """Write rows; missing ones repeat the first, since a row of padding sees nothing."""
        ids, positions, types, lengths, firsts, counts, options = self._split(numbers, shape)
        ids.fill(self._padding)
        options.fill(0)
        positions.reshape(shape.rows, shape.length)[:] = _PLACES[: shape.length]
        for row in range(shape.rows):
            item = items[row] if row < len(items) else items[0]
            at = row * shape.length
            ids[at : at + len(item["ids"])] = item["ids"]
            types[at : at + shape.length] = item["qtype"]
            markers = item["markers"]
            lengths[row], firsts[row], counts[row] = len(item["ids"]), at, len(markers)
            first = row * shape.options
            options[first : first + len(markers)] = np.asarray(markers) + at

    def read(self, numbers: Tensor, shape: Shape) -> tuple[Inputs, Attention]:
        """Give the network its inputs."""
        ids, positions, types, lengths, firsts, counts, options = self._split(numbers, shape)
        inputs = _inputs(ids, positions, types, firsts, counts, options, shape)
        return inputs, Padded(lengths, shape.length, self._reach, self._compute)

    def usual(self) -> Iterator[Shape]:
        """Give one row of each length, then few."""
        for rows in self._buckets.rows[:4]:
            for length in self._buckets.lengths:
                yield Shape(rows, length, 4)

    def samples(self) -> tuple[Shape, Shape]:
        """Give a shape of one row and one of several."""
        lengths = self._buckets.lengths
        return Shape(1, lengths[len(lengths) // 2], 4), Shape(4, lengths[len(lengths) // 2], 4)

    def _split(self, numbers: Array, shape: Shape) -> list[Array]:
        rows = shape.rows
        tokens = rows * shape.length
        return _cut(numbers, (tokens, tokens, tokens, rows, rows, rows, rows * shape.options))


_PLACES: Final = np.arange(8192, dtype=np.int32)


def _cut(numbers: Array, sizes: Sequence[int]) -> list[Array]:
    ends = np.cumsum(sizes)
    return [numbers[end - size : end] for end, size in zip(ends, sizes, strict=True)]


def _inputs(
    ids: Tensor,
    positions: Tensor,
    types: Tensor,
    firsts: Tensor,
    counts: Tensor,
    options: Tensor,
    shape: Shape,
) -> Inputs:
    number = torch.arange(shape.options, device=counts.device)
    return Inputs(
        ids=ids,
        positions=positions,
        types=types,
        firsts=firsts,
        options=options.view(shape.rows, shape.options),
        present=number < counts[:, None],
    )

"""Few shapes: the lengths and row counts that inputs are padded to.

A GPU's libraries keep memory for every shape they have run, and a compiler keeps code; a model that
is given few shapes keeps both bounded. On a CPU nothing is kept and every padded token is computed,
so there inputs keep their lengths.
"""

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

AUTO: Final = "auto"
OFF: Final = "off"

# Each at most half again the one before: a row is padded by a fifth on average.
_LENGTHS: Final = (32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144)
_ROWS: Final = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
_OPTIONS: Final = (2, 4, 8, 16, 32, 64, 128, 255)


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of one forward pass's input."""

    rows: int
    length: int
    """Tokens a row, padding included."""
    options: int
    """Options a row, padding included."""


@dataclass(frozen=True, slots=True)
class Buckets:
    """The sizes that inputs are padded to, rising; none of a kind leaves that kind as it is."""

    lengths: tuple[int, ...] = ()
    rows: tuple[int, ...] = ()
    options: tuple[int, ...] = ()

    def length(self, tokens: int) -> int:
        """Give the padded length of a row of so many tokens."""
        return _up(tokens, self.lengths)

    def shape(self, exact: Shape) -> Shape:
        """Give the padded sizes of an input."""
        return Shape(
            rows=_up(exact.rows, self.rows),
            length=_up(exact.length, self.lengths),
            options=_up(exact.options, self.options),
        )


EXACT: Final = Buckets()
"""No padding beyond the longest row of a batch."""


def choose(asked: str | tuple[int, ...], device: str, window: int) -> Buckets:
    """Give the buckets for ``--length-buckets`` on a device, for a window of so many tokens.

    ``auto`` pads on a GPU and not on a CPU. The last bucket is the window: no row is longer.
    """
    if asked == OFF or (asked == AUTO and device == "cpu"):
        return EXACT
    lengths = _LENGTHS if isinstance(asked, str) else asked
    return Buckets(lengths=(*_below(window, lengths), window), rows=_ROWS, options=_OPTIONS)


def _below(limit: int, sizes: Iterable[int]) -> tuple[int, ...]:
    return tuple(size for size in sizes if size < limit)


def _up(size: int, sizes: tuple[int, ...]) -> int:
    at = bisect_left(sizes, size)
    return sizes[at] if at < len(sizes) else size

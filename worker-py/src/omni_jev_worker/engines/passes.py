"""Many rows as several passes of few."""

from collections.abc import Iterator, Sequence
from typing import Final

from omni_jev_worker.collate import Item
from omni_jev_worker.engines.forward import Reach

# Of all rows of a pass together, but for a single longer row. More bring nothing on a CPU, and
# where rows are kept apart by a mask, attention looks at the square of them.
_TOKENS: Final = 512
_ROWS: Final = 64
_OPTIONS: Final = 255


def reach(window: int) -> Reach:
    """Say what an engine takes whose rows are of any length up to the window."""
    return Reach(tokens=window, rows=_ROWS, options=_OPTIONS)


def groups(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    """Cut at least one row into passes, in their order."""
    start = tokens = 0
    for at, item in enumerate(items):
        length = len(item["ids"])
        if at > start and (tokens + length > _TOKENS or at - start == _ROWS):
            yield items[start:at]
            start, tokens = at, 0
        tokens += length
    yield items[start:]

"""A batch of laya's rows as one list of tokens, without padding, in numpy."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omni_jev_worker.collate import Item

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class TokenList:
    """Rows one after the other."""

    lengths: tuple[int, ...]
    """The tokens of each row."""
    ids: Ints
    """The tokens' numbers."""
    positions: Ints
    """Each token's place in its row."""
    types: Ints
    """Laya's type of the question that each token belongs to."""
    wanted: Ints
    """The tokens that the last layer answers for: each row's first, then its options."""
    wanted_lengths: tuple[int, ...]
    """How many of them each row has."""
    firsts: Ints
    """Where each row's first token is among the wanted ones."""
    options: Ints
    """Where its options are among them, rows by options; 0 for one that is not there."""
    present: NDArray[np.bool_]
    """Which of those there are."""

    @property
    def rows(self) -> Ints:
        """The number of the row that each token is in."""
        return np.repeat(np.arange(len(self.lengths)), self.lengths)


def token_list(items: Sequence[Item], *, least_options: int = 1) -> TokenList:
    """Put at least one row into a list; ``options`` has room for ``least_options`` at least."""
    lengths = tuple(len(item["ids"]) for item in items)
    starts = np.cumsum([0, *lengths[:-1]])
    counts = np.array([len(item["markers"]) for item in items])
    places: list[Any] = [
        start + np.asarray((0, *item["markers"])) for start, item in zip(starts, items, strict=True)
    ]
    firsts = np.cumsum([0, *(1 + counts[:-1])])
    most = np.arange(max(least_options, int(counts.max())))
    present = most < counts[:, None]
    options = firsts[:, None] + 1 + most
    options[~present] = 0
    return TokenList(
        lengths=lengths,
        ids=np.concatenate([item["ids"] for item in items]),
        positions=np.concatenate([np.arange(length) for length in lengths]),
        types=np.repeat([item["qtype"] for item in items], lengths),
        wanted=np.concatenate(places),
        wanted_lengths=tuple((1 + counts).tolist()),
        firsts=firsts,
        options=options,
        present=present,
    )

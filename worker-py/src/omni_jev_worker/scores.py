"""What a forward pass says about rows, as numbers."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


class NotFinite(Exception):
    """The model gave NaN or infinity; that is never sent as an answer."""

    def __init__(self) -> None:
        super().__init__("the model gave numbers that are not finite")


@dataclass(frozen=True, slots=True)
class Scores:
    """What the model says about some rows."""

    logits: NDArray[np.float32]
    """Rows by options; past a row's own options the numbers mean nothing."""
    act: NDArray[np.float32]
    """Rows by acts, probabilities."""

    @property
    def finite(self) -> bool:
        """Whether every number is one."""
        return bool(np.isfinite(self.logits).all() and np.isfinite(self.act).all())


def join(parts: Sequence[Scores], rows: Sequence[int] | None = None) -> Scores:
    """Put the scores of a request's rows together that ran in several batches.

    ``rows`` says which row of the request each row of the parts is; none when they are in order.
    """
    if len(parts) == 1:
        return parts[0]
    options = max(part.logits.shape[1] for part in parts)
    logits = np.concatenate(
        [np.pad(part.logits, ((0, 0), (0, options - part.logits.shape[1]))) for part in parts]
    )
    act = np.concatenate([part.act for part in parts])
    if rows is None:
        return Scores(logits, act)
    order = np.argsort(rows)
    return Scores(logits[order], act[order])


def differ(one: Scores, other: Scores, options: Sequence[int]) -> float:
    """Give the largest difference of a probability, for rows with so many options each."""
    return max(
        float(np.abs(_softmax(one.logits[row, :k]) - _softmax(other.logits[row, :k])).max())
        for row, k in enumerate(options)
    )


def _softmax(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    powers = np.exp(logits - logits.max())
    return np.asarray(powers / powers.sum(), dtype=np.float32)

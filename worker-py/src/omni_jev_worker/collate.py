"""Token lists to the padded arrays of one forward pass, in numpy.

Laya's own function builds a tensor for each row and pads to the longest; this one fills arrays of a
bucket's size, so that the device sees few shapes.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omni_jev_worker.buckets import Buckets, Shape

Item = Mapping[str, Any]
"""Laya's row: ``ids`` (token numbers), ``markers`` (where each option begins), ``qtype``."""


def exact(items: Sequence[Item]) -> Shape:
    """Give the sizes of at least one row, padded to the longest and no further."""
    return Shape(
        rows=len(items),
        length=max(len(item["ids"]) for item in items),
        options=max(len(item["markers"]) for item in items),
    )


def collate(
    items: Sequence[Item], padding: int, buckets: Buckets
) -> dict[str, NDArray[np.int64] | NDArray[np.bool_]]:
    """Give the model's arguments for at least one row, each with the rows first.

    ``input_ids`` and ``attention_mask`` are rows by tokens, ``marker_pos`` and ``marker_mask`` rows
    by options, ``qtype`` rows; int64, but the mask of the markers is bool. Missing rows repeat the
    first: a row of padding alone would attend to nothing, and be not a number.
    """
    shape = buckets.shape(exact(items))
    ids = np.full((shape.rows, shape.length), padding, dtype=np.int64)
    attention = np.zeros((shape.rows, shape.length), dtype=np.int64)
    positions = np.zeros((shape.rows, shape.options), dtype=np.int64)
    present = np.zeros((shape.rows, shape.options), dtype=np.bool_)
    types = np.empty(shape.rows, dtype=np.int64)
    for row in range(shape.rows):
        item = items[row] if row < len(items) else items[0]
        ids[row, : len(item["ids"])] = item["ids"]
        attention[row, : len(item["ids"])] = 1
        positions[row, : len(item["markers"])] = item["markers"]
        present[row, : len(item["markers"])] = True
        types[row] = item["qtype"]
    return {
        "input_ids": ids,
        "attention_mask": attention,
        "marker_pos": positions,
        "marker_mask": present,
        "qtype": types,
    }

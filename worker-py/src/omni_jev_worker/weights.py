"""Checks the header of a safetensors file, without reading the weights.

The format: 8 bytes little-endian length, a JSON header with each tensor's ``dtype``, ``shape`` and
``data_offsets``, then the data, which the tensors cover without gap or overlap.
https://github.com/huggingface/safetensors#format
"""

import json
import math
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

_MAX_HEADER_BYTES: Final = 100_000_000  # safetensors' own bound

# Bytes of one number, for the types that torch can read.
_BYTES: Final[Mapping[str, int]] = {
    "BOOL": 1,
    "U8": 1,
    "I8": 1,
    "F8_E4M3": 1,
    "F8_E4M3FNUZ": 1,
    "F8_E5M2": 1,
    "F8_E5M2FNUZ": 1,
    "U16": 2,
    "I16": 2,
    "F16": 2,
    "BF16": 2,
    "U32": 4,
    "I32": 4,
    "F32": 4,
    "U64": 8,
    "I64": 8,
    "F64": 8,
    "C64": 8,
}


class Damaged(Exception):
    """The file is no whole safetensors file. The text completes "the file … "."""


def tensor_names(path: Path) -> list[str]:
    """Check a file's header against itself and the file's size; give the tensors' names.

    Raises `Damaged`, or `OSError` where the file cannot be read.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
        if not 2 <= length <= min(_MAX_HEADER_BYTES, size):
            raise Damaged(f"is truncated or no safetensors file ({size} bytes)")
        header = file.read(length)
    try:
        tensors = json.loads(header)
    except (ValueError, RecursionError):
        raise Damaged("has a damaged header") from None
    if not isinstance(tensors, dict):
        raise Damaged("has a damaged header")
    tensors.pop("__metadata__", None)
    end = _check_tensors(tensors)
    if size != 8 + length + end:
        state = "is truncated" if size < 8 + length + end else "has bytes after its end"
        raise Damaged(f"{state}: {size} bytes, its header says {8 + length + end}")
    return list(tensors)


def _check_tensors(tensors: dict[str, Any]) -> int:
    """Check that the tensors lie one after the other; give the end of the last one."""
    spans = sorted((*_span(name, entry), name) for name, entry in tensors.items())
    end = 0
    for start, stop, name in spans:
        if start != end:
            what = "overlaps another" if start < end else "comes after a gap"
            raise Damaged(f"has a damaged header: the tensor {name[:80]} {what}")
        end = stop
    return end


def _span(name: str, entry: Any) -> tuple[int, int]:
    """Give where a tensor's data begins and ends."""
    shown = f"has a damaged header: the tensor {name[:80]}"
    if not isinstance(entry, dict):
        raise Damaged(f"{shown} has no description")
    kind: Any = entry.get("dtype")
    shape: Any = entry.get("shape")
    offsets: Any = entry.get("data_offsets")
    width = _BYTES.get(kind) if isinstance(kind, str) else None
    if width is None:
        raise Damaged(f"{shown} has a type that torch cannot read ({str(kind)[:20]})")
    if not _are_sizes(shape):
        raise Damaged(f"{shown} has no shape")
    if not _are_sizes(offsets) or len(offsets) != 2:
        raise Damaged(f"{shown} has no place in the file")
    start, stop = offsets
    if stop - start != width * math.prod(shape):
        raise Damaged(f"{shown} has a shape that is not that of its data")
    return start, stop


def _are_sizes(value: Any) -> bool:
    # `True` is an int to Python.
    return isinstance(value, list) and all(type(item) is int and item >= 0 for item in value)

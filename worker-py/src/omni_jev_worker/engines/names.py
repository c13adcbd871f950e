"""The engines by name, and the precisions that each has."""

from collections.abc import Mapping
from typing import Final

from omni_jev_worker.tuning import BF16, FP16, FP32, INT8

TORCH: Final = "torch"
"""Laya's own library: the reference, and the default."""
ONNX: Final = "onnx"
"""ONNX Runtime on a CPU."""

ENGINES: Final = (TORCH, ONNX)

DEVICES: Final[Mapping[str, str]] = {ONNX: "cpu"}
"""Where each runs; torch runs on any."""

WEIGHTS: Final[Mapping[str, tuple[str, ...]]] = {
    TORCH: (FP32, FP16, BF16),
    ONNX: (FP32, INT8),
}
"""The precisions of ``--weights`` that each has."""

"""The engines by name, and the precisions that each has."""

import sys
from collections.abc import Mapping
from typing import Final

from omni_jev_worker.tuning import BF16, FP16, FP32, INT8

TORCH: Final = "torch"
"""Laya's own library: the reference, and the default."""
ONNX: Final = "onnx"
"""ONNX Runtime on a CPU."""

MLX: Final = "mlx"
"""MLX: on the GPU of an Apple Silicon Mac, and on the CPU elsewhere."""

COREML: Final = "coreml"
"""Core ML: the Neural Engine of a Mac, for short rows."""

ENGINES: Final = (TORCH, ONNX, MLX, COREML)

DEVICES: Final[Mapping[str, str]] = {
    ONNX: "cpu",
    COREML: "cpu",
    MLX: "mps" if sys.platform == "darwin" else "cpu",
}
"""Where each runs; torch runs on any."""

WEIGHTS: Final[Mapping[str, tuple[str, ...]]] = {
    TORCH: (FP32, FP16, BF16),
    ONNX: (FP32, INT8),
    MLX: (FP32, FP16),
    COREML: (FP16,),
}
"""The precisions of ``--weights`` that each has."""

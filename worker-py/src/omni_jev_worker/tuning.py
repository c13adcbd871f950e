"""How a model is asked to run: by what, in which precision, and whether it is compiled."""

from dataclasses import dataclass
from typing import Final

FP32: Final = "fp32"
FP16: Final = "fp16"
BF16: Final = "bf16"
INT8: Final = "int8"
PRECISIONS: Final = (FP32, FP16, BF16, INT8)

_TORCH: Final = "torch"


@dataclass(frozen=True, slots=True)
class Tuning:
    """What was asked for, or what is done."""

    weights: str = FP32
    """One of `PRECISIONS`."""
    compiled: bool = False
    engine: str = _TORCH
    """One of `engines.names.ENGINES`."""

    @property
    def is_plain(self) -> bool:
        """Whether the model runs as laya runs it."""
        return self == PLAIN

    def __str__(self) -> str:
        """Give the flags that ask for it."""
        words = [f"--engine {self.engine}"] if self.engine != _TORCH else []
        words += ["--compile"] if self.compiled else []
        if self.weights != FP32:
            words.append(f"--weights {self.weights}")
        return " ".join(words) or "laya's own precision, uncompiled"


PLAIN: Final = Tuning()
"""As laya runs it."""


class CannotTune(Exception):
    """A model cannot run as asked; the text completes "because … "."""

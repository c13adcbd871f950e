"""The CPU's end of a pass: memory that the device copies from and to, kept for later passes.

It is kept rather than taken anew for each pass, for more than speed: torch watches pinned memory
that it gets back by an event on the stream that used it. Let go of by another thread (one that
had an answer) in the midst of a recording, that event becomes a part of what is recorded, and to
ask for it later is an error, by which a pass fails that has nothing to do with it.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch

from omni_jev_worker.accelerator import Accelerator
from omni_jev_worker.network.parts import Tensor

Found = npt.NDArray[np.float32]


class Staging:
    """What one pass at a time gives to the device and gets from it. Used by one thread."""

    def __init__(self, accelerator: Accelerator) -> None:
        self._accelerator = accelerator
        self._given: Tensor | None = None
        self._found: Tensor | None = None
        self._unfinished: Callable[[], Tensor] | None = None
        """Waits until the device uses this memory no more; then it is as this gives it."""

    def numbers(self, size: int) -> Tensor:
        """Give memory for so many int32, in which are those of a pass before.

        That pass is waited for, if it was given up before its result came. Raises what torch does.
        """
        if self._unfinished is not None:
            self._finish()
        self._given = self._room(self._given, size, torch.int32)
        return self._given[:size]

    def send(self, target: Tensor) -> None:
        """Copy numbers to the device's memory, when the device comes to it."""
        given = self._given
        if given is None:
            raise RuntimeError("there are no numbers to send")

        def sent() -> Tensor:
            self._accelerator.synchronize()
            return given

        self._unfinished = sent
        self._accelerator.send(given[: len(target)], target)

    def fetch(self, computed: Tensor) -> None:
        """Copy what was computed to the CPU's memory, when the device comes to it."""
        size = computed.numel()
        self._found = self._room(self._found, size, computed.dtype)
        host = self._found[:size].view(computed.shape)
        self._unfinished = self._accelerator.fetch(computed, host)

    def result(self) -> Found:
        """Wait for what was computed; give it in memory of its own. Raises what torch raises."""
        return self._finish().numpy().copy()

    def _finish(self) -> Tensor:
        if self._unfinished is None:
            raise RuntimeError("nothing is under way")
        unfinished, self._unfinished = self._unfinished, None
        with torch.inference_mode():
            return unfinished()

    def _room(self, kept: Tensor | None, size: int, dtype: torch.dtype) -> Tensor:
        """Give memory for so many numbers at least: that which is there, if it is enough."""
        if kept is not None and len(kept) >= size and kept.dtype == dtype:
            return kept
        return self._accelerator.host_buffer(1 << (size - 1).bit_length(), dtype)

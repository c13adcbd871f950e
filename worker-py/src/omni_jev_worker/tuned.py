"""Builds the passes of a tuned model: the network on its device, compiled or not."""

from typing import Any

import torch

from omni_jev_worker import buckets, packed
from omni_jev_worker.network.attention import Kernel, flash_attention
from omni_jev_worker.network.device_pass import DevicePass
from omni_jev_worker.network.layouts import Layout, PaddedLayout, UnpaddedLayout
from omni_jev_worker.network.network import Network, Rotations, rotations
from omni_jev_worker.network.parts import Parts, known_form, take_apart
from omni_jev_worker.network.regions import PLAIN, Regions
from omni_jev_worker.packed import PackedForward
from omni_jev_worker.placement import Placement
from omni_jev_worker.tuning import BF16, FP16, CannotTune, Tuning

_TYPES = {FP16: torch.float16, BF16: torch.bfloat16}


class Tuned:
    """One way to run an agent's model, and the passes that run it."""

    def __init__(self, agent: Any, placement: Placement, window: int, tuning: Tuning) -> None:
        """Take an agent whose model is on the CPU in full precision. Raises `CannotTune`."""
        if not known_form(agent.model):
            raise CannotTune("the checkpoint is not of a known form")
        self._agent = agent
        self._placement = placement
        self._window = window
        self.tuning = tuning
        # Made in full precision, and on the CPU as laya does.
        self._rotations = rotations(agent.model, window)
        self._regions = _compiled_regions() if tuning.compiled else PLAIN
        self.packed: PackedForward | None = None
        """Runs unpadded rows on the CPU."""
        self.device_pass: DevicePass | None = None
        """Runs everything else."""

    def go_home(self) -> None:
        """Bring the weights to their device and make the passes there; raise why it cannot be."""
        self._placement.accelerator.take_thread()
        weights = _TYPES.get(self.tuning.weights)
        self._placement.go_home(weights or torch.float32)
        compute = weights or self._placement.amp_dtype
        if self._placement.device == "cpu" and not self.tuning.compiled:
            self.packed = packed.make(self._agent.model, self._window, compute)
            return
        parts = take_apart(self._agent.model)
        device = self._placement.accelerator.device
        turns = {kind: each.to(device) for kind, each in self._rotations.items()}
        self.device_pass = self._make(parts, turns, compute, self._regions)

    @property
    def runs_compiled(self) -> bool:
        """Whether compiled code runs now."""
        return self.device_pass is not None and self._regions is not PLAIN

    def stop_compiling(self) -> None:
        """Run the same code uncompiled from now on; what has been recorded stays."""
        self._regions = PLAIN
        if self.device_pass is not None:
            self.device_pass.network.regions = PLAIN

    def leave(self) -> None:
        """Drop the passes, which know where the weights are."""
        self.packed = self.device_pass = None

    def _make(
        self, parts: Parts, turns: dict[str, Rotations], compute: torch.dtype, regions: Regions
    ) -> DevicePass:
        network = Network(parts, turns, compute, regions)
        return DevicePass(
            network,
            self._layout(parts, compute),
            self._placement.accelerator,
            graphs=self.tuning.compiled,
        )

    def _layout(self, parts: Parts, compute: torch.dtype) -> Layout:
        accelerator = self._placement.accelerator
        if accelerator.has_unpadded_attention and compute != torch.float32:
            return UnpaddedLayout(self._window, parts.reach, self._kernel(parts))
        # Few sizes wherever this runs: it is for devices and compilers that keep something of each.
        chosen = buckets.choose(buckets.AUTO, "mps", self._window)
        return PaddedLayout(chosen, self._agent.tok.pad_token_id, parts.reach, compute)

    def _kernel(self, parts: Parts) -> Kernel:
        # Triton's kernel needs what the compiler needs, and comes with it.
        if self.tuning.compiled:
            from omni_jev_worker.network import triton_attention

            sizes = {parts.embedding.shape[1] // parts.heads}
            sizes |= {parts.embedding.shape[1] // parts.head_heads} if parts.head else set()
            if all(triton_attention.can_take(size) for size in sizes):
                return triton_attention.attend
        return flash_attention


def _compiled_regions() -> Regions:
    # Only here: what is imported for it takes longer than all of torch's own import.
    from omni_jev_worker.network import compiled

    return compiled.compile_regions()

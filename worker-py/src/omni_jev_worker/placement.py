"""Where a laya model's weights are, in which precision, and how they get from place to place."""

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from omni_jev_worker import accelerator
from omni_jev_worker.memory import give_back_to_system

# Kept in full precision whatever the others are: it is small, and its input is.
_EXACT = "act_head."


class Placement:
    """The places of one agent's model. Used on the engine's thread alone."""

    def __init__(self, agent: Any, weights: Path) -> None:
        """Take an agent on the device that is its home, and the file of its weights."""
        self._agent = agent
        self._weights = weights
        self._home = (agent.device, agent.dtype, agent.amp_enabled)
        self._precision: torch.dtype | None = None
        self._rounded = False
        self.accelerator = accelerator.of(agent.device.type)
        """Of its home."""

    def adopt(self, device: torch.device, amp_dtype: torch.dtype) -> None:
        """Have another home than the CPU that the model was loaded on, as laya would use it.

        ``amp_dtype`` is the type that the checkpoint names for autocast; the rest is as in laya's
        ``Agent.__init__``.
        """
        if device.type == "cpu":
            return
        old = device.type == "cuda" and torch.cuda.get_device_capability(device) < (8, 0)
        half = torch.float16 if device.type == "mps" or old else amp_dtype
        self._home = (device, half, True)
        self.accelerator = accelerator.of(device.type)

    @property
    def home(self) -> str:
        """Where the model belongs."""
        return str(self._home[0].type)

    @property
    def device(self) -> str:
        """Where the model is now."""
        return str(self._agent.device.type)

    @property
    def amp_dtype(self) -> torch.dtype:
        """The type that laya computes in at home: autocast's, else full precision."""
        _, dtype, amp_enabled = self._home
        return dtype if amp_enabled else torch.float32

    @property
    def held_bytes(self) -> int:
        """What torch holds of the device's memory that the model is on; 0 on the CPU."""
        return self.accelerator.held_bytes() if self.device == self.home else 0

    def release_memory(self) -> None:
        """Give back what torch and the C library cache: on the device, and on the CPU."""
        self.accelerator.release()
        give_back_to_system()

    def leave(self) -> None:
        """Go to the CPU, in full precision, as laya does when the device has no memory."""
        agent = self._agent
        _move(agent.model, torch.device("cpu"), torch.float32)
        agent.device, agent.dtype, agent.amp_enabled = torch.device("cpu"), torch.float32, False
        self.release_memory()

    def go_home(self, precision: torch.dtype | None = None) -> None:
        """Go to the device where the model was loaded; raise why it cannot, and stay.

        ``precision`` is that of the weights there from now on; none keeps what it was last.
        """
        agent = self._agent
        device, dtype, amp_enabled = self._home
        self._precision = precision or self._precision or torch.float32
        try:
            _move(agent.model, device, self._precision)
        except RuntimeError:
            # Some of it may have moved.
            _move(agent.model, agent.device, torch.float32)
            raise
        agent.device = device
        self._rounded |= self._precision != torch.float32
        if self._precision == torch.float32:
            agent.dtype, agent.amp_enabled = dtype, amp_enabled
        else:
            # Laya's own pass would take the halves for full precision: it must not be used.
            agent.dtype, agent.amp_enabled = self._precision, False

    def restore(self) -> None:
        """Go to the CPU, with the numbers of the checkpoint's file again."""
        self.leave()
        if self._rounded:
            self._agent.model.load_state_dict(load_file(str(self._weights)), strict=True)
            self._rounded = False


def _move(model: Any, device: torch.device, precision: torch.dtype) -> None:
    """Move parameters and buffers; only parameters change their type, and not all of them."""
    for name, parameter in model.named_parameters():
        kept = name.startswith(_EXACT)
        dtype = torch.float32 if kept else precision
        parameter.data = parameter.data.to(device=device, dtype=dtype)
    for buffer in model.buffers():
        buffer.data = buffer.data.to(device=device)

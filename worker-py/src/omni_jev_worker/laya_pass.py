"""Laya's own forward pass: padded rows through its model, as its agent runs them."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch

from omni_jev_worker.buckets import Buckets
from omni_jev_worker.collate import Item, collate
from omni_jev_worker.memory import out_of_memory
from omni_jev_worker.scores import Scores


class LayaPass:
    """The pass of one of laya's agents, on the device that it is on."""

    def __init__(self, agent: Any) -> None:
        self._agent = agent

    def run(self, items: Sequence[Item], buckets: Buckets) -> tuple[int, Scores]:
        """Run rows padded to buckets; give the padded length too.

        Laya's own `_forward` moves the model to the CPU for good when memory runs out; here the
        engine decides what happens then. Raises what torch raises.
        """
        agent = self._agent
        arrays = collate(items, agent.tok.pad_token_id, buckets)
        tensors = {name: torch.from_numpy(part) for name, part in arrays.items()}
        rows, length = arrays["input_ids"].shape
        with torch.inference_mode():
            try:
                return length, self._pass(tensors, amp=agent._amp_enabled_for(rows))
            except RuntimeError as fault:
                if out_of_memory(fault) or not agent._amp_enabled_for(rows):
                    raise
                if agent.device.type not in ("mps", "cpu"):
                    raise
                # As laya does: not each build has autocast for each operation.
                agent.amp_enabled, agent.dtype = False, torch.float32
                return length, self._pass(tensors, amp=False)

    def _pass(self, arrays: Mapping[str, torch.Tensor], *, amp: bool) -> Scores:
        agent = self._agent
        # Not entered without need: on some devices that alone raises.
        autocast = torch.autocast(agent.device.type, agent.dtype) if amp else nullcontext()
        with autocast:
            logits, act = agent.model(**{k: part.to(agent.device) for k, part in arrays.items()})
        # Copied to the CPU in the same try: a GPU tells of its failures only here.
        return Scores(logits.float().cpu().numpy(), torch.softmax(act.float(), -1).cpu().numpy())

"""Texts to vectors: the mean of what a checkpoint's own encoder gives for their tokens.

The same as laya's ``embed_fn_from_agent``, but for rows that are tokenized already.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from omni_jev_worker.buckets import EXACT
from omni_jev_worker.collate import Item, collate


def embed(agent: Any, items: Sequence[Item]) -> NDArray[np.float32]:
    """Give a vector for each row of tokens, padding left out: rows by width.

    On the engine's thread. Raises what torch raises.
    """
    encoder, device = agent.model.encoder, agent.device
    weights = next(encoder.parameters()).dtype
    # Half weights beside float32 norms: as the tuned pass has them, the products are in half.
    halves = weights != torch.float32
    precision = torch.autocast(device.type, weights) if halves else nullcontext()
    arrays = collate(items, agent.tok.pad_token_id, EXACT)
    ids, attention = (
        torch.from_numpy(arrays[name]).to(device) for name in ("input_ids", "attention_mask")
    )
    with torch.inference_mode(), precision:
        hidden = encoder(input_ids=ids, attention_mask=attention).last_hidden_state.float()
        present = attention.unsqueeze(-1).float()
        mean = (hidden * present).sum(1) / present.sum(1).clamp(min=1.0)
    return np.asarray(mean.cpu().numpy(), dtype=np.float32)

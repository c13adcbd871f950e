"""Laya's forward pass on a CPU, over rows that lie one after the other, without padding.

The weights, the precision and the arithmetic are laya's; the order of the work is not:

- The rows of a batch are one list of tokens. What is done for each token alone (norms, linear
  layers) is done for all of them at once; attention is done row by row. So padding costs nothing,
  and rows of any lengths share a pass.
- Laya's last layer answers only at the first token and where the options stand; so here nothing
  else of it is computed but what those attend to.
- The rotations and the masks are made once, and a layer takes a fifth of the calls that it takes in
  transformers. A call costs as much as the arithmetic of a short row.

`make` says no for a model that is not of the form that the network knows, and `Model` compares the
answers with laya's own before it uses any.
"""

from collections.abc import Sequence
from typing import Any

import torch

from omni_jev_worker.collate import Item
from omni_jev_worker.network.attention import RowByRow, SlidingMasks
from omni_jev_worker.network.network import Inputs, Network, rotations
from omni_jev_worker.network.parts import known_form, take_apart
from omni_jev_worker.scores import Scores
from omni_jev_worker.unpadded import TokenList, token_list

Tensor = torch.Tensor


def make(model: Any, window: int, compute: torch.dtype = torch.float32) -> "PackedForward | None":
    """Prepare the pass of a laya model on the CPU; none if the model has another form.

    ``window`` is the length of the longest row, ``compute`` the type of the matrix products.
    """
    if not known_form(model):
        return None
    return PackedForward(Network(take_apart(model), rotations(model, window), compute))


class PackedForward:
    """The pass of one model. Used by one thread."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._masks = SlidingMasks(network.parts.reach, network.compute)

    def __call__(self, items: Sequence[Item]) -> tuple[Tensor, Tensor]:
        """Run laya's rows: logits (rows by options) and acts' probabilities (rows by acts)."""
        tokens = token_list(items)
        with torch.inference_mode():
            return self._network(_inputs(tokens), RowByRow(tokens.lengths, self._masks))

    def run(self, items: Sequence[Item]) -> Scores:
        """Run laya's rows and give their scores. Raises what torch raises."""
        logits, acts = self(items)
        return Scores(logits.numpy(), acts.numpy())


def _inputs(tokens: TokenList) -> Inputs:
    """Bring a list of tokens to torch."""
    return Inputs(
        ids=torch.from_numpy(tokens.ids),
        positions=torch.from_numpy(tokens.positions),
        types=torch.from_numpy(tokens.types),
        firsts=torch.from_numpy(tokens.firsts),
        options=torch.from_numpy(tokens.options),
        present=torch.from_numpy(tokens.present),
        wanted=torch.from_numpy(tokens.wanted),
        wanted_lengths=tokens.wanted_lengths,
    )

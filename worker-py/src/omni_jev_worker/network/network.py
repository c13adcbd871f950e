"""Laya's pass: regions and attentions in turn."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from omni_jev_worker.network.attention import Attention, RowByRow
from omni_jev_worker.network.parts import SLIDING, Parts, Tensor
from omni_jev_worker.network.regions import PLAIN, Regions


@dataclass(frozen=True, slots=True)
class Inputs:
    """A batch, on the network's device: rows one after the other in one list of tokens."""

    ids: Tensor
    """The tokens' numbers, int."""
    positions: Tensor
    """Each token's place in its row, int."""
    types: Tensor
    """Laya's type of the question that each token belongs to, int."""
    firsts: Tensor
    """Where each row's first token is in what the last layer gives, rows."""
    options: Tensor
    """Where each row's options are in it, rows by options; anywhere for one that is not there."""
    present: Tensor
    """Which of those there are, bool."""
    wanted: Tensor | None = None
    """The only tokens that the last layer answers for, none for all; by `RowByRow` alone."""
    wanted_lengths: tuple[int, ...] = ()
    """How many of them each row has."""


class Network:
    """The pass of one model on one device. Used by one thread."""

    def __init__(
        self,
        parts: Parts,
        rotations: "Mapping[str, Rotations]",
        compute: torch.dtype,
        regions: Regions = PLAIN,
    ) -> None:
        """Take the parts and the rotations, on the device.

        ``compute`` is the type of matrix products and attention.
        """
        self.parts = parts
        self.compute = compute
        self.regions = regions
        self._rotations = rotations

    def __call__(
        self, inputs: Inputs, attention: Attention, head: Regions | None = None
    ) -> tuple[Tensor, Tensor]:
        """Run a batch; give logits (rows by options) and acts' probabilities (rows by acts).

        ``head`` is other regions for laya's head than the encoder's.
        """
        head = head if head is not None else self.regions
        hidden = self._encode(inputs, attention)
        hidden = self._head(hidden, inputs, attention, head)
        return head.decide(  # type: ignore[no-any-return]
            hidden,
            inputs.firsts,
            inputs.options,
            inputs.present,
            self.parts.decision,
            self.compute,
        )

    def _encode(self, inputs: Inputs, attention: Attention) -> Tensor:
        parts, regions, compute = self.parts, self.regions, self.compute
        turns = {kind: each.at(inputs.positions) for kind, each in self._rotations.items()}
        hidden = regions.enter(inputs.ids, parts.embedding, parts.embedding_norm)
        layers, kinds = parts.layers, parts.kinds
        triple = regions.encoder_open(hidden, layers[0], *turns[kinds[0]], parts.heads, compute)
        for at, layer in enumerate(layers[:-1]):
            seen = attention.over(*triple, sliding=kinds[at] == SLIDING)
            hidden, triple = regions.encoder_between(
                hidden,
                seen,
                layer,
                layers[at + 1],
                *turns[kinds[at + 1]],
                parts.heads,
                parts.act,
                compute,
            )
        seen = attention.over(*triple, sliding=kinds[-1] == SLIDING)
        kinds_of_tokens = parts.types[inputs.types]
        return torch.as_tensor(
            regions.leave(
                hidden, seen, layers[-1], parts.final_norm, kinds_of_tokens, parts.act, compute
            )
        )

    def _head(
        self, hidden: Tensor, inputs: Inputs, attention: Attention, regions: Regions
    ) -> Tensor:
        parts, compute = self.parts, self.compute
        layers, heads, act = parts.head, parts.head_heads, parts.head_act
        if not layers:
            return hidden if inputs.wanted is None else hidden[inputs.wanted]
        for layer in layers[:-1]:
            triple = regions.head_open(hidden, layer, heads, compute)
            seen = attention.over(*triple, sliding=False)
            hidden = regions.head_close(hidden, seen, layer, act, compute)
        last = layers[-1]
        if inputs.wanted is not None and isinstance(attention, RowByRow):
            triple = regions.head_open_some(hidden, inputs.wanted, last, heads, compute)
            queries, keys, values = triple
            seen = attention.some(queries, keys, values, inputs.wanted_lengths)
            hidden = hidden[inputs.wanted]
        else:
            triple = regions.head_open(hidden, last, heads, compute)
            seen = attention.over(*triple, sliding=False)
        return torch.as_tensor(regions.head_close(hidden, seen, last, act, compute))


class Rotations:
    """The turns of queries and keys by their place, for one kind of layer."""

    def __init__(self, cosines: Tensor, sines: Tensor) -> None:
        self._cosines, self._sines = cosines, sines

    def at(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Give cosines and sines for tokens at these places, each tokens by 1 by 1 by size."""
        return self._cosines[positions], self._sines[positions]

    def at_all(self) -> tuple[Tensor, Tensor]:
        """Give cosines and sines for every place, places by size."""
        return self._cosines[:, 0, 0], self._sines[:, 0, 0]

    def to(self, device: torch.device) -> "Rotations":
        """Give the same on a device."""
        return Rotations(self._cosines.to(device), self._sines.to(device))


def rotations(model: Any, window: int) -> dict[str, Rotations]:
    """Make the rotations of a laya model for rows of at most so many tokens, in full precision."""
    encoder = model.encoder
    made = {}
    for kind in set(encoder.config.layer_types):
        cosines, sines = encoder.rotary_emb(torch.zeros(1), torch.arange(window)[None], kind)
        sines = sines[0, :, None, None].float().clone()
        # With the sign of the first half turned, ``rotate_half(x) * sin`` is ``roll(x) * sines``.
        sines[..., : sines.shape[-1] // 2].neg_()
        made[kind] = Rotations(cosines[0, :, None, None].float().clone(), sines)
    return made

"""Laya's forward pass on a CPU, over rows that lie one after the other, without padding.

The weights, the precision and the arithmetic are laya's; the order of the work is not:

- The rows of a batch are one list of tokens. What is done for each token alone (norms, linear
  layers) is done for all of them at once; attention is done row by row. So padding costs nothing,
  and rows of any lengths share a pass.
- Laya's last layer answers only at the first token and where the options stand; so here nothing
  else of it is computed but what those attend to.
- The rotations and the masks are made once, and a layer takes a fifth of the calls that it takes in
  transformers. A call costs as much as the arithmetic of a short row.

`make` says no for a model that is not of the form that this knows, and `Model` compares the answers
with laya's own before it uses any.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import torch
from torch.nn import functional

from omni_jev_worker.collate import Item

Tensor = torch.Tensor

_MASKED: Final = -1e4
"""What laya gives the logit of an option that a row does not have."""


def make(model: Any, window: int) -> "PackedForward | None":
    """Prepare the pass of a laya model on the CPU; none if the model has another form.

    ``window`` is the length of the longest row.
    """
    encoder, head = model.encoder, model.head
    known = type(encoder).__name__ == "ModernBertModel" and all(
        kind == "default" for kind in getattr(encoder.rotary_emb, "rope_type", {}).values()
    )
    plain = head is None or all(
        layer.norm_first and layer.self_attn.in_proj_bias is not None for layer in head.layers
    )
    return PackedForward(model, window) if known and plain else None


class PackedForward:
    """The pass of one model. Used by one thread."""

    def __init__(self, model: Any, window: int) -> None:
        self._model = model
        encoder = model.encoder
        kinds = encoder.config.layer_types
        self._rotations = {kind: _Rotations(encoder, kind, window) for kind in set(kinds)}
        self._layers = [
            (kind, _EncoderLayer(layer, encoder.config))
            for layer, kind in zip(encoder.layers, kinds, strict=True)
        ]
        self._masks = _Masks(encoder.config.sliding_window)
        self._head = [_HeadLayer(layer) for layer in (model.head.layers if model.head else ())]

    def __call__(self, items: Sequence[Item]) -> tuple[Tensor, Tensor]:
        """Run laya's rows; give logits (rows by options) and act logits (rows by acts), float32."""
        rows = _Rows(items)
        hidden = self._encode(rows)
        types = self._model.type_emb.weight[rows.types]
        hidden = hidden + torch.repeat_interleave(types, rows.lengths_tensor, dim=0)
        for layer in self._head[:-1]:
            hidden = layer.all(hidden, rows)
        wanted = self._head[-1].some(hidden, rows) if self._head else hidden[rows.wanted]
        return self._decide(wanted, rows)

    def _encode(self, rows: "_Rows") -> Tensor:
        encoder = self._model.encoder
        hidden = encoder.embeddings(input_ids=rows.ids)
        none: list[Tensor | None] = [None] * len(rows.lengths)
        masks = {"full_attention": none, "sliding_attention": self._masks.of(rows.lengths)}
        turns = {kind: rotation.at(rows.positions) for kind, rotation in self._rotations.items()}
        for kind, layer in self._layers:
            hidden = layer(hidden, rows.lengths, turns[kind], masks[kind])
        return torch.as_tensor(encoder.final_norm(hidden))

    def _decide(self, wanted: Tensor, rows: "_Rows") -> tuple[Tensor, Tensor]:
        """Do laya's last step, as its `DecisionModel.forward` does."""
        model = self._model
        found = model.scorer(wanted[rows.options]).squeeze(-1).float()
        logits = torch.full(rows.present.shape, _MASKED)
        logits[rows.present] = found
        p = torch.softmax(logits, -1)
        count = rows.present.sum(-1).clamp(min=2).float()
        entropy = -(p * torch.log(p.clamp_min(1e-9))).sum(-1) / torch.log(count)
        if p.shape[-1] < 2:
            p = functional.pad(p, (0, 1))
        top = p.topk(2, -1).values
        features = torch.stack([top[:, 0], top[:, 0] - top[:, 1], entropy, count / 255.0], -1)
        act = model.act_head(torch.cat([wanted[rows.firsts].float(), features], -1))
        return logits, act


class _Rows:
    """Where everything of a batch lies in the list of its tokens."""

    def __init__(self, items: Sequence[Item]) -> None:
        self.lengths = [len(item["ids"]) for item in items]
        self.lengths_tensor = torch.tensor(self.lengths)
        starts = np.cumsum([0, *self.lengths[:-1]])
        self.ids = torch.from_numpy(np.concatenate([item["ids"] for item in items]))
        self.types = torch.tensor([item["qtype"] for item in items])
        counts = [len(item["markers"]) for item in items]
        self.present = torch.arange(max(counts)) < torch.tensor(counts)[:, None]
        # What the last layer answers for: each row's first token, then its options.
        self.wanted_lengths = [1 + count for count in counts]
        places = [
            start + np.asarray((0, *item["markers"]))
            for start, item in zip(starts, items, strict=True)
        ]
        self.wanted = torch.from_numpy(np.concatenate(places))
        is_first = np.zeros(len(self.wanted), dtype=bool)
        is_first[np.cumsum([0, *self.wanted_lengths[:-1]])] = True
        self.firsts = torch.from_numpy(is_first)
        self.options = ~self.firsts
        self.positions = torch.from_numpy(np.concatenate([np.arange(n) for n in self.lengths]))


class _Masks:
    """Which tokens see each other in a layer with a window."""

    def __init__(self, reach: int) -> None:
        self._reach = reach
        self._mask = torch.zeros(0, 0)

    def of(self, lengths: Sequence[int]) -> list[Tensor | None]:
        """Give what is added to the attention of each row; none where every token sees all."""
        longest = max(lengths)
        if longest <= self._reach + 1:
            return [None] * len(lengths)
        if len(self._mask) < longest:
            place = torch.arange(longest)
            far = (place[:, None] - place).abs() > self._reach
            self._mask = torch.zeros(longest, longest).masked_fill_(far, float("-inf"))
        return [self._mask[:n, :n] if n > self._reach + 1 else None for n in lengths]


class _Rotations:
    """The turns of queries and keys by their place, for one kind of layer."""

    def __init__(self, encoder: Any, kind: str, window: int) -> None:
        cosines, sines = encoder.rotary_emb(torch.zeros(1), torch.arange(window)[None], kind)
        self._cosines = cosines[0, :, None, None].float().clone()
        # With the sign of the first half turned, ``rotate_half(x) * sin`` is ``roll(x) * sines``.
        self._sines = sines[0, :, None, None].float().clone()
        self._sines[..., : sines.shape[-1] // 2].neg_()

    def at(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Give cosines and sines for tokens at these places, each tokens by 1 by 1 by size."""
        return self._cosines[positions], self._sines[positions]


class _Norm:
    """A layer norm's numbers."""

    def __init__(self, norm: Any) -> None:
        self._shape, self._weight, self._bias, self._eps = (
            tuple(norm.normalized_shape),
            norm.weight,
            norm.bias,
            norm.eps,
        )

    def __call__(self, hidden: Tensor) -> Tensor:
        return functional.layer_norm(hidden, self._shape, self._weight, self._bias, self._eps)


class _Linear:
    """A linear layer's numbers."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self._weight, self._bias = weight, bias
        self._turned = weight.t()

    def __call__(self, inner: Tensor) -> Tensor:
        return functional.linear(inner, self._weight, self._bias)

    def added_to(self, hidden: Tensor, inner: Tensor) -> Tensor:
        """Give the sum of the hidden state and this layer's output."""
        if self._bias is None:
            return torch.addmm(hidden, inner, self._turned)
        return hidden + functional.linear(inner, self._weight, self._bias)


def _linear(layer: Any) -> _Linear:
    return _Linear(layer.weight, layer.bias)


class _EncoderLayer:
    """One layer of ModernBERT."""

    def __init__(self, layer: Any, config: Any) -> None:
        self._heads = config.num_attention_heads
        self._size = config.hidden_size // config.num_attention_heads
        first = isinstance(layer.attn_norm, torch.nn.Identity)
        self._attn_norm = None if first else _Norm(layer.attn_norm)
        self._qkv, self._out = _linear(layer.attn.Wqkv), _linear(layer.attn.Wo)
        self._mlp_norm = _Norm(layer.mlp_norm)
        self._wide, self._narrow = _linear(layer.mlp.Wi), _linear(layer.mlp.Wo)
        self._act = layer.mlp.act

    def __call__(
        self,
        hidden: Tensor,
        lengths: Sequence[int],
        turns: tuple[Tensor, Tensor],
        masks: Sequence[Tensor | None],
    ) -> Tensor:
        normed = hidden if self._attn_norm is None else self._attn_norm(hidden)
        qkv = self._qkv(normed).view(-1, 3, self._heads, self._size)
        turned = qkv[:, :2]
        cosines, sines = turns
        turned = torch.addcmul(turned * cosines, turned.roll(self._size // 2, -1), sines)
        seen = _attend(turned[:, 0], turned[:, 1], qkv[:, 2], lengths, lengths, masks)
        hidden = self._out.added_to(hidden, seen)
        inner, gate = self._wide(self._mlp_norm(hidden)).chunk(2, -1)
        return self._narrow.added_to(hidden, self._act(inner) * gate)


class _HeadLayer:
    """One layer of torch's `TransformerEncoder`, norm first, as laya's head has them."""

    def __init__(self, layer: Any) -> None:
        attention = layer.self_attn
        width = attention.embed_dim
        self._heads = attention.num_heads
        self._size = width // attention.num_heads
        weight, bias = attention.in_proj_weight, attention.in_proj_bias
        self._queries = _Linear(weight[:width], bias[:width])
        self._pairs = _Linear(weight[width:], bias[width:])
        self._out = _linear(attention.out_proj)
        self._norm1, self._norm2 = _Norm(layer.norm1), _Norm(layer.norm2)
        self._wide, self._narrow = _linear(layer.linear1), _linear(layer.linear2)
        self._act = layer.activation

    def all(self, hidden: Tensor, rows: _Rows) -> Tensor:
        """Give what comes out for every token."""
        normed = self._norm1(hidden)
        return self._rest(hidden, normed, normed, rows, rows.lengths)

    def some(self, hidden: Tensor, rows: _Rows) -> Tensor:
        """Give what comes out for the wanted tokens."""
        normed = self._norm1(hidden)
        asking = normed[rows.wanted]
        return self._rest(hidden[rows.wanted], asking, normed, rows, rows.wanted_lengths)

    def _rest(
        self, hidden: Tensor, asking: Tensor, normed: Tensor, rows: _Rows, lengths: list[int]
    ) -> Tensor:
        queries = self._queries(asking).view(-1, self._heads, self._size)
        pairs = self._pairs(normed).view(-1, 2, self._heads, self._size)
        none: list[Tensor | None] = [None] * len(lengths)
        seen = _attend(queries, pairs[:, 0], pairs[:, 1], lengths, rows.lengths, none)
        hidden = self._out.added_to(hidden, seen)
        return self._narrow.added_to(hidden, self._act(self._wide(self._norm2(hidden))))


def _attend(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    asking: Sequence[int],
    asked: Sequence[int],
    masks: Sequence[Tensor | None],
) -> Tensor:
    """Let each row's tokens see those of their row: tokens by heads by size, to tokens by width."""
    seen = []
    ask, key = 0, 0
    for length, reach, mask in zip(asking, asked, masks, strict=True):
        part = functional.scaled_dot_product_attention(
            queries[ask : ask + length].transpose(0, 1)[None],
            keys[key : key + reach].transpose(0, 1)[None],
            values[key : key + reach].transpose(0, 1)[None],
            attn_mask=mask,
        )
        seen.append(part[0].transpose(0, 1).reshape(length, -1))
        ask, key = ask + length, key + reach
    return seen[0] if len(seen) == 1 else torch.cat(seen)

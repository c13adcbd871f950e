"""The network between two attentions, as functions of tensors: what can be compiled.

Each computes for every token by itself. The hidden state is tokens by width in float32, whatever
`compute` is: that is the type of the matrix products, and the sum of all layers would lose too much
in half precision (laya's head works at hundreds of times the encoder's scale).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch.nn import functional

from omni_jev_worker.network.parts import (
    Activation,
    Decision,
    EncoderLayer,
    HeadLayer,
    Linear,
    Norm,
    Tensor,
)

MASKED: Final = -1e4
"""What laya gives the logit of an option that a row does not have."""

Triple = tuple[Tensor, Tensor, Tensor]
"""Queries, keys and values, each tokens by heads by size."""


def enter(ids: Tensor, embedding: Tensor, norm: Norm) -> Tensor:
    """Give the hidden state of token numbers."""
    return _normed(embedding[ids].float(), norm)


def encoder_open(
    hidden: Tensor,
    layer: EncoderLayer,
    cosines: Tensor,
    sines: Tensor,
    heads: int,
    compute: torch.dtype,
) -> Triple:
    """Give what a layer's attention takes, turned by the tokens' places.

    ``cosines`` and ``sines`` are tokens by 1 by 1 by size; the first half of the sines has the
    other sign, so that ``rotate_half(x) * sin`` is ``roll(x) * sines``.
    """
    normed = hidden if layer.attention_norm is None else _normed(hidden, layer.attention_norm)
    tokens, width = hidden.shape
    size = width // heads
    qkv = _project(normed, layer.qkv, compute).view(tokens, 3, heads, size)
    turned = qkv[:, :2].float()
    turned = torch.addcmul(turned * cosines, turned.roll(size // 2, -1), sines).to(compute)
    return turned[:, 0], turned[:, 1], qkv[:, 2]


def encoder_close(
    hidden: Tensor, seen: Tensor, layer: EncoderLayer, act: Activation, compute: torch.dtype
) -> Tensor:
    """Give the hidden state after a layer, from what its attention saw."""
    hidden = _add_projected(hidden, seen, layer.out, compute)
    inner, gate = _project(_normed(hidden, layer.mlp_norm), layer.wide, compute).chunk(2, -1)
    return _add_projected(hidden, act(inner) * gate, layer.narrow, compute)


def encoder_between(
    hidden: Tensor,
    seen: Tensor,
    layer: EncoderLayer,
    following: EncoderLayer,
    cosines: Tensor,
    sines: Tensor,
    heads: int,
    act: Activation,
    compute: torch.dtype,
) -> tuple[Tensor, Triple]:
    """Close a layer and open the following one."""
    hidden = encoder_close(hidden, seen, layer, act, compute)
    return hidden, encoder_open(hidden, following, cosines, sines, heads, compute)


def leave(
    hidden: Tensor,
    seen: Tensor,
    layer: EncoderLayer,
    norm: Norm,
    kinds: Tensor,
    act: Activation,
    compute: torch.dtype,
) -> Tensor:
    """Close the last layer, and add to each token what kind of question it is asked (by width)."""
    return _normed(encoder_close(hidden, seen, layer, act, compute), norm) + kinds.float()


def head_open(hidden: Tensor, layer: HeadLayer, heads: int, compute: torch.dtype) -> Triple:
    """Give what a layer of laya's head takes for its attention."""
    tokens, width = hidden.shape
    normed = _normed(hidden, layer.attention_norm)
    qkv = _project(normed, layer.qkv, compute).view(tokens, 3, heads, width // heads)
    return qkv[:, 0], qkv[:, 1], qkv[:, 2]


def head_open_some(
    hidden: Tensor, wanted: Tensor, layer: HeadLayer, heads: int, compute: torch.dtype
) -> Triple:
    """Give the same with the queries of the wanted tokens only."""
    tokens, width = hidden.shape
    normed = _normed(hidden, layer.attention_norm)
    weight, bias = layer.qkv
    asking = Linear(weight[:width], None if bias is None else bias[:width])
    asked = Linear(weight[width:], None if bias is None else bias[width:])
    queries = _project(normed[wanted], asking, compute).view(-1, heads, width // heads)
    pairs = _project(normed, asked, compute).view(tokens, 2, heads, width // heads)
    return queries, pairs[:, 0], pairs[:, 1]


def head_close(
    hidden: Tensor, seen: Tensor, layer: HeadLayer, act: Activation, compute: torch.dtype
) -> Tensor:
    """Give the hidden state after a layer of the head."""
    hidden = _add_projected(hidden, seen, layer.out, compute)
    inner = _project(_normed(hidden, layer.mlp_norm), layer.wide, compute)
    return _add_projected(hidden, act(inner), layer.narrow, compute)


def decide(
    hidden: Tensor,
    firsts: Tensor,
    options: Tensor,
    present: Tensor,
    decision: Decision,
    compute: torch.dtype,
) -> tuple[Tensor, Tensor]:
    """Do the last step as laya's ``DecisionModel.forward`` does it.

    ``firsts`` (rows) and ``options`` (rows by options) say where a row's first token and its
    options are in ``hidden``, ``present`` which options there are. Gives logits (rows by options)
    and the probabilities of acts (rows by acts), float32.
    """
    inner = functional.gelu(
        _project(_normed(hidden[options], decision.norm), decision.inner, compute)
    )
    logits = _project(inner.float(), decision.score, torch.float32).squeeze(-1)
    logits = logits.masked_fill(~present, MASKED)
    p = torch.softmax(logits, -1)
    count = present.sum(-1).clamp(min=2).float()
    entropy = -(p * torch.log(p.clamp_min(1e-9))).sum(-1) / torch.log(count)
    if p.shape[-1] < 2:
        p = functional.pad(p, (0, 1))
    top = p.topk(2, -1).values
    features = torch.stack([top[:, 0], top[:, 0] - top[:, 1], entropy, count / 255.0], -1)
    pooled = torch.cat([hidden[firsts], features], -1)
    act = functional.gelu(_project(pooled, decision.act_inner, torch.float32))
    return logits, torch.softmax(_project(act, decision.act, torch.float32), -1)


def _normed(hidden: Tensor, norm: Norm) -> Tensor:
    return functional.layer_norm(hidden, norm.weight.shape, norm.weight, norm.bias, norm.eps)


def _project(inner: Tensor, linear: Linear, compute: torch.dtype) -> Tensor:
    bias = None if linear.bias is None else linear.bias.to(compute)
    return functional.linear(inner.to(compute), linear.weight.to(compute), bias)


def _add_projected(hidden: Tensor, inner: Tensor, linear: Linear, compute: torch.dtype) -> Tensor:
    """Give the sum of the hidden state and a linear layer's output."""
    if linear.bias is None and hidden.dtype == compute:
        return torch.addmm(hidden, inner, linear.weight.t().to(compute))
    return hidden + _project(inner, linear, compute)


@dataclass(frozen=True, slots=True)
class Regions:
    """The functions above, as they are or compiled."""

    enter: Callable[..., Any] = enter
    encoder_open: Callable[..., Any] = encoder_open
    encoder_between: Callable[..., Any] = encoder_between
    leave: Callable[..., Any] = leave
    head_open: Callable[..., Any] = head_open
    head_open_some: Callable[..., Any] = head_open_some
    head_close: Callable[..., Any] = head_close
    decide: Callable[..., Any] = decide


PLAIN: Final = Regions()
"""As they are."""

"""The numbers of a laya model, taken apart into what the network's regions need."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple, cast

import torch
from torch.nn import functional

Tensor = torch.Tensor
Activation = Callable[[Tensor], Tensor]

FULL: Final = "full_attention"
SLIDING: Final = "sliding_attention"


class Norm(NamedTuple):
    """A layer norm over the last dimension."""

    weight: Tensor
    bias: Tensor | None
    eps: float


class Linear(NamedTuple):
    """A linear layer: weight outputs by inputs."""

    weight: Tensor
    bias: Tensor | None


class EncoderLayer(NamedTuple):
    """One layer of ModernBERT."""

    attention_norm: Norm | None
    """None in the first layer, whose input is normed already."""
    qkv: Linear
    out: Linear
    mlp_norm: Norm
    wide: Linear
    narrow: Linear


class HeadLayer(NamedTuple):
    """One layer of torch's `TransformerEncoder`, norm first, as laya's head has them."""

    attention_norm: Norm
    qkv: Linear
    out: Linear
    mlp_norm: Norm
    wide: Linear
    narrow: Linear


class Decision(NamedTuple):
    """Laya's last step: the scorer of options, and the head that says whether to act."""

    norm: Norm
    inner: Linear
    score: Linear
    act_inner: Linear
    act: Linear


class Parts(NamedTuple):
    """A laya model."""

    embedding: Tensor
    embedding_norm: Norm
    layers: tuple[EncoderLayer, ...]
    kinds: tuple[str, ...]
    """`FULL` or `SLIDING`, of each layer."""
    reach: int
    """How far a token sees in a sliding layer, to either side."""
    final_norm: Norm
    types: Tensor
    head: tuple[HeadLayer, ...]
    decision: Decision
    heads: int
    """Attention heads of a layer of the encoder."""
    head_heads: int
    """Attention heads of a layer of laya's head."""
    act: Activation
    head_act: Activation


def known_form(model: Any) -> bool:
    """Say whether a laya model is of the form that the network computes."""
    encoder, head = model.encoder, model.head
    known = type(encoder).__name__ == "ModernBertModel" and all(
        kind == "default" for kind in getattr(encoder.rotary_emb, "rope_type", {}).values()
    )
    plain = head is None or all(
        layer.norm_first and layer.self_attn.in_proj_bias is not None for layer in head.layers
    )
    return known and plain


def take_apart(model: Any) -> Parts:
    """Give the parts of a laya model of a known form; they share its memory."""
    encoder, head = model.encoder, model.head
    head_layers = tuple(head.layers) if head is not None else ()
    scorer, act_head = model.scorer, model.act_head
    return Parts(
        embedding=_plain(encoder.embeddings.tok_embeddings.weight),
        embedding_norm=_norm(encoder.embeddings.norm),
        layers=tuple(_encoder_layer(layer) for layer in encoder.layers),
        kinds=tuple(encoder.config.layer_types),
        reach=int(encoder.config.sliding_window),
        final_norm=_norm(encoder.final_norm),
        types=_plain(model.type_emb.weight),
        head=tuple(_head_layer(layer) for layer in head_layers),
        decision=Decision(
            norm=_norm(scorer[0]),
            inner=_linear(scorer[1]),
            score=_linear(scorer[3]),
            act_inner=_linear(act_head[0]),
            act=_linear(act_head[2]),
        ),
        heads=int(encoder.config.num_attention_heads),
        head_heads=int(head_layers[0].self_attn.num_heads) if head_layers else 1,
        act=_activation(encoder.layers[0].mlp.act),
        head_act=head_layers[0].activation if head_layers else functional.relu,
    )


def _plain(parameter: Any) -> Tensor:
    """Give a parameter's tensor: to a compiler, a parameter is something of its own."""
    return torch.as_tensor(parameter.detach())


def _activation(module: Any) -> Activation:
    """Give the plain function where there is one: a compiler then sees the same in every layer."""
    return (
        functional.gelu if type(module).__name__ == "GELUActivation" else cast("Activation", module)
    )


def _norm(norm: Any) -> Norm:
    """Take a norm in full precision, which the hidden state has: few numbers, and exact."""
    bias = None if norm.bias is None else _plain(norm.bias).float()
    return Norm(_plain(norm.weight).float(), bias, float(norm.eps))


def _linear(layer: Any) -> Linear:
    return Linear(_plain(layer.weight), None if layer.bias is None else _plain(layer.bias))


def _encoder_layer(layer: Any) -> EncoderLayer:
    first = isinstance(layer.attn_norm, torch.nn.Identity)
    return EncoderLayer(
        attention_norm=None if first else _norm(layer.attn_norm),
        qkv=_linear(layer.attn.Wqkv),
        out=_linear(layer.attn.Wo),
        mlp_norm=_norm(layer.mlp_norm),
        wide=_linear(layer.mlp.Wi),
        narrow=_linear(layer.mlp.Wo),
    )


def _head_layer(layer: Any) -> HeadLayer:
    attention = layer.self_attn
    return HeadLayer(
        attention_norm=_norm(layer.norm1),
        qkv=Linear(_plain(attention.in_proj_weight), _plain(attention.in_proj_bias)),
        out=_linear(attention.out_proj),
        mlp_norm=_norm(layer.norm2),
        wide=_linear(layer.linear1),
        narrow=_linear(layer.linear2),
    )

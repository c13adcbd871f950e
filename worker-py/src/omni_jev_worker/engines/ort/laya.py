"""A laya model as a graph: what `network.Network` computes, in ONNX's operators.

Its inputs are a batch as one list of tokens (`unpadded.TokenList`). Rows are kept apart by what is
added to the attention, so that nothing is padded; its cost grows with the square of the tokens of
all rows together, which is why `session.Session` gives it few at a time.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np
import onnx
from onnx import TensorProto

from omni_jev_worker.engines.forward import Unavailable
from omni_jev_worker.engines.ort.products import Exact, Operand, Products, part
from omni_jev_worker.engines.ort.writer import MICROSOFT, GraphWriter
from omni_jev_worker.network.network import Rotations
from omni_jev_worker.network.parts import (
    SLIDING,
    Activation,
    EncoderLayer,
    HeadLayer,
    Linear,
    Norm,
    Parts,
    Tensor,
)
from omni_jev_worker.network.regions import MASKED

KINDS: Final = frozenset(
    [
        *(("", kind) for kind in ("Abs", "Add", "And", "Cast", "Concat", "Div", "Equal", "Gather")),
        *(("", kind) for kind in ("LayerNormalization", "LessOrEqual", "Log", "MatMul", "Max")),
        *(("", kind) for kind in ("Mul", "Neg", "QuantizeLinear", "ReduceMax", "ReduceSum")),
        *(("", kind) for kind in ("Relu", "Reshape", "Softmax", "Squeeze", "Sub", "TopK")),
        *(("", kind) for kind in ("Unsqueeze", "Where")),
        *((MICROSOFT, kind) for kind in ("Gelu", "MatMulIntegerToFloat", "MultiHeadAttention")),
        (MICROSOFT, "RotaryEmbedding"),
    ]
)
"""The operators that such a graph consists of."""

_INPUTS: Final = {
    "ids": (TensorProto.INT64, ["tokens"]),
    "positions": (TensorProto.INT64, ["tokens"]),
    "rows": (TensorProto.INT64, ["tokens"]),
    "types": (TensorProto.INT64, ["tokens"]),
    "wanted": (TensorProto.INT64, ["wanted"]),
    "firsts": (TensorProto.INT64, ["rows"]),
    "options": (TensorProto.INT64, ["rows", "options"]),
    "present": (TensorProto.BOOL, ["rows", "options"]),
}
_OUTPUTS: Final = {
    "logits": (TensorProto.FLOAT, ["rows", "options"]),
    "acts": (TensorProto.FLOAT, ["rows", "acts"]),
}

# Added to what a token must not see: it is then nothing, to the last bit of a float32.
_UNSEEN: Final = -3e4

# By the names of torch's functions: others are modules or partial functions, which have none.
_ACTIVATIONS: Final[Mapping[str, tuple[str, str]]] = {
    "gelu": (MICROSOFT, "Gelu"),
    "relu": ("", "Relu"),
}


class LayaGraph:
    """Writes the graph of one model."""

    def __init__(
        self,
        graph: GraphWriter,
        parts: Parts,
        rotations: Mapping[str, Rotations],
        products: Products,
    ) -> None:
        """Take the parts in full precision. Raises `Unavailable` for an activation of its own."""
        for act in (parts.act, parts.head_act):
            if _name(act) not in _ACTIVATIONS:
                raise Unavailable("its activation is not one that can be written as ONNX")
        self._graph = graph
        self._parts = parts
        self._products = products
        self._width = int(parts.embedding.shape[1])
        self._first = graph.constant(np.array([0]))
        self._second = graph.constant(np.array([1]))
        self._last = graph.constant(np.array([-1]))
        self._turns = {kind: self._turn(each) for kind, each in rotations.items()}
        self._masks = self._write_masks()
        self._place = self._unsqueeze("positions", self._second)

    def write(self) -> onnx.ModelProto:
        """Write all of it."""
        hidden = self._head(self._encode())
        self._decide(hidden)
        return self._graph.model(_INPUTS, _OUTPUTS)

    def _encode(self) -> str:
        node, parts = self._graph.node, self._parts
        tokens = node("Gather", self._numbers(parts.embedding), "ids")
        hidden = normed = self._normed(tokens, parts.embedding_norm)
        norms = [*(layer.attention_norm for layer in parts.layers[1:]), parts.final_norm]
        if (first := parts.layers[0].attention_norm) is not None:
            normed = self._normed(hidden, first)
        for layer, kind, norm in zip(parts.layers, parts.kinds, norms, strict=True):
            hidden = self._encoder_layer(hidden, normed, layer, kind)
            normed = self._normed(hidden, norm) if norm is not None else hidden
        return node("Add", normed, node("Gather", self._numbers(parts.types), "types"))

    def _encoder_layer(self, hidden: str, normed: str, layer: EncoderLayer, kind: str) -> str:
        node, width = self._graph.node, self._width
        operand = self._products.prepare(self._graph, normed)
        queries, keys, values = (
            self._product(operand, part(layer.qkv, start, start + width))
            for start in (0, width, 2 * width)
        )
        mask = self._masks["sliding" if kind == SLIDING else "full"]
        seen = self._attend(
            self._turned(queries, kind),
            self._turned(keys, kind),
            self._unsqueeze(values, self._first),
            mask,
            self._parts.heads,
        )
        hidden = node("Add", hidden, self._multiplied(seen, layer.out))
        operand = self._products.prepare(self._graph, self._normed(hidden, layer.mlp_norm))
        half = layer.wide.weight.shape[0] // 2
        inner = self._product(operand, part(layer.wide, 0, half))
        gate = self._product(operand, part(layer.wide, half, 2 * half))
        gated = node("Mul", self._activated(inner, self._parts.act), gate)
        return node("Add", hidden, self._multiplied(gated, layer.narrow))

    def _head(self, hidden: str) -> str:
        """Write laya's head; the last layer answers for the wanted tokens alone."""
        for number, layer in enumerate(self._parts.head, start=1):
            hidden = self._head_layer(hidden, layer, last=number == len(self._parts.head))
        if not self._parts.head:
            hidden = self._graph.node("Gather", hidden, "wanted")
        return hidden

    def _head_layer(self, hidden: str, layer: HeadLayer, *, last: bool) -> str:
        node, width = self._graph.node, self._width
        normed = self._normed(hidden, layer.attention_norm)
        operand = asking = self._products.prepare(self._graph, normed)
        if last:
            asking = self._products.prepare(self._graph, node("Gather", normed, "wanted"))
            hidden = node("Gather", hidden, "wanted")
        queries = self._product(asking, part(layer.qkv, 0, width))
        keys = self._product(operand, part(layer.qkv, width, 2 * width))
        values = self._product(operand, part(layer.qkv, 2 * width, 3 * width))
        seen = self._attend(
            self._unsqueeze(queries, self._first),
            self._unsqueeze(keys, self._first),
            self._unsqueeze(values, self._first),
            self._masks["wanted" if last else "full"],
            self._parts.head_heads,
        )
        hidden = node("Add", hidden, self._multiplied(seen, layer.out))
        inner = self._multiplied(self._normed(hidden, layer.mlp_norm), layer.wide)
        activated = self._activated(inner, self._parts.head_act)
        return node("Add", hidden, self._multiplied(activated, layer.narrow))

    def _decide(self, hidden: str) -> None:
        """Write the last step, all of it exact: see `regions.decide`."""
        graph, node, exact = self._graph, self._graph.node, Exact()
        decision = self._parts.decision

        def exactly(tokens: str, linear: Linear) -> str:
            return exact.multiply(graph, Operand(tokens), linear)

        options = self._normed(node("Gather", hidden, "options"), decision.norm)
        inner = node("Gelu", exactly(options, decision.inner), domain=MICROSOFT)
        scores = node("Squeeze", exactly(inner, decision.score), self._last)
        masked = graph.constant(np.float32(MASKED))
        graph.named("Where", ("present", scores, masked), ("logits",))
        likely = node("Softmax", "logits", axis=-1)
        least = node("Max", likely, graph.constant(np.float32(1e-9)))
        told = node("ReduceSum", node("Mul", likely, node("Log", least)), self._last, keepdims=1)
        counted = node("Cast", "present", to=TensorProto.FLOAT)
        count = node("ReduceSum", counted, self._last, keepdims=1)
        count = node("Max", count, graph.constant(np.float32(2)))
        entropy = node("Div", node("Neg", told), node("Log", count))
        top, _ = graph.nodes("TopK", likely, graph.constant(np.array([2])), outputs=2, axis=-1)
        best, second = (node("Gather", top, each, axis=1) for each in (self._first, self._second))
        share = node("Div", count, graph.constant(np.float32(255)))
        firsts = node("Gather", hidden, "firsts")
        features = (best, node("Sub", best, second), entropy, share)
        pooled = node("Concat", firsts, *features, axis=1)
        act = node("Gelu", exactly(pooled, decision.act_inner), domain=MICROSOFT)
        graph.named("Softmax", (exactly(act, decision.act),), ("acts",), axis=-1)

    def _attend(self, queries: str, keys: str, values: str, mask: str, heads: int) -> str:
        """Give tokens by width from 1 by tokens by width each."""
        seen = self._graph.node(
            *("MultiHeadAttention", queries, keys, values, "", "", mask),
            domain=MICROSOFT,
            num_heads=heads,
        )
        return self._graph.node("Squeeze", seen, self._first)

    def _turned(self, tokens: str, kind: str) -> str:
        """Turn queries or keys by their place; give 1 by tokens by width.

        To the operator each token is a row of its own: it refuses more places than it has turns.
        """
        turned = self._graph.node(
            *("RotaryEmbedding", self._unsqueeze(tokens, self._second), self._place),
            *self._turns[kind],
            domain=MICROSOFT,
            num_heads=self._parts.heads,
        )
        shape = self._graph.constant(np.array([1, -1, self._width]))
        return self._graph.node("Reshape", turned, shape)

    def _turn(self, rotations: Rotations) -> tuple[str, str]:
        cosines, sines = rotations.at_all()
        half = cosines.shape[-1] // 2
        # The second half of the sines has their own sign.
        return self._numbers(cosines[..., :half]), self._numbers(sines[..., half:])

    def _write_masks(self) -> dict[str, str]:
        """Say what is added to the attention: 1 by 1 by asking by asked tokens."""
        node = self._graph.node
        asked = self._unsqueeze("rows", self._first)
        same = node("Equal", self._unsqueeze("rows", self._second), asked)
        places = (self._unsqueeze("positions", each) for each in (self._second, self._first))
        apart = node("Abs", node("Sub", *places))
        near = node("LessOrEqual", apart, self._graph.constant(np.int64(self._parts.reach)))
        asking = self._unsqueeze(node("Gather", "rows", "wanted"), self._second)
        seen = {
            "full": same,
            "sliding": node("And", same, near),
            "wanted": node("Equal", asking, asked),
        }
        both = self._graph.constant(np.array([0, 1]))
        nothing = self._graph.constant(np.float32(0))
        unseen = self._graph.constant(np.float32(_UNSEEN))
        return {
            name: self._unsqueeze(node("Where", each, nothing, unseen), both)
            for name, each in seen.items()
        }

    def _multiplied(self, tokens: str, linear: Linear) -> str:
        return self._product(self._products.prepare(self._graph, tokens), linear)

    def _product(self, operand: Operand, linear: Linear) -> str:
        return self._products.multiply(self._graph, operand, linear)

    def _normed(self, tokens: str, norm: Norm) -> str:
        inputs = [tokens, self._numbers(norm.weight)]
        if norm.bias is not None:
            inputs.append(self._numbers(norm.bias))
        return self._graph.node("LayerNormalization", *inputs, axis=-1, epsilon=norm.eps)

    def _activated(self, tokens: str, act: Activation) -> str:
        domain, kind = _ACTIVATIONS[_name(act)]
        return self._graph.node(kind, tokens, domain=domain)

    def _unsqueeze(self, tokens: str, axes: str) -> str:
        return self._graph.node("Unsqueeze", tokens, axes)

    def _numbers(self, tensor: Tensor) -> str:
        return self._graph.constant(tensor.float().numpy())


def _name(act: Activation) -> str:
    return str(getattr(act, "__name__", ""))

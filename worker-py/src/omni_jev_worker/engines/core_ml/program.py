"""The network of a laya model as a Core ML program for one row of a fixed length.

It is written operator by operator: coremltools' own conversion of the torch module fails on what
the network does with sizes. The masks come in from outside, and the last step, which needs more
than half precision, is left to `forward`.
"""

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import coremltools as ct
import numpy as np
from coremltools.converters.mil import Builder as mb  # noqa: N813 (so it is called in its own pages)
from coremltools.converters.mil.mil import types

from omni_jev_worker.engines.forward import Unavailable
from omni_jev_worker.network.network import Rotations
from omni_jev_worker.network.parts import SLIDING, Activation, Linear, Norm, Parts, Tensor

PROGRAM: Final = "program.mlmodel"
NUMBERS: Final = "weight.bin"

OPERATORS: Final = frozenset(
    [
        *("add", "cast", "concat", "const", "gather", "gelu", "greater_equal"),
        *(
            "layer_norm",
            "linear",
            "matmul",
            "mul",
            "relu",
            "reshape",
            "select",
            "slice_by_size",
            "softmax",
        ),
        *("split", "transpose"),
    ]
)
"""What such a program consists of."""

_ACTIVATIONS: Final = ("gelu", "relu")
_PACKAGE: Final = Path("Data") / "com.apple.CoreML"
_BLOB: Final = "@model_path/weights/weight.bin"

Var = Any
"""What coremltools calls the output of an operator."""


def write(
    parts: Parts, rotations: Mapping[str, Rotations], length: int, options: int, folder: Path
) -> None:
    """Write the program and its numbers. Raises `Unavailable`, and what coremltools raises."""
    if {_name(parts.act), _name(parts.head_act)} - set(_ACTIVATIONS):
        raise Unavailable("its activation is not one that this engine has")
    model = ct.convert(
        _Writer(parts, rotations, length, options).program(),
        compute_precision=ct.precision.FLOAT16,
        minimum_deployment_target=ct.target.macOS14,
        skip_model_load=True,
    )
    with tempfile.TemporaryDirectory() as scratch:
        package = Path(scratch) / "laya.mlpackage"
        model.save(str(package))
        shutil.copyfile(package / _PACKAGE / "model.mlmodel", folder / PROGRAM)
        shutil.copyfile(package / _PACKAGE / "weights" / NUMBERS, folder / NUMBERS)


def inspect(folder: Path) -> None:
    """Check that a program has known operators alone, and its own numbers. Raises `ValueError`."""
    try:
        spec = ct.utils.load_spec(str(folder / PROGRAM))
    except Exception as fault:
        raise ValueError(f"{PROGRAM} cannot be read ({type(fault).__name__})") from None
    if spec.WhichOneof("Type") != "mlProgram" or set(spec.mlProgram.functions) != {"main"}:
        raise ValueError(f"{PROGRAM} is not a program of one function")
    for block in spec.mlProgram.functions["main"].block_specializations.values():
        for operation in block.operations:
            if operation.type not in OPERATORS or operation.blocks:
                raise ValueError(f"{PROGRAM} has an operator that is not known here")
            for value in operation.attributes.values():
                stored = value.WhichOneof("value") == "blobFileValue"
                if stored and value.blobFileValue.fileName != _BLOB:
                    raise ValueError(f"{PROGRAM} reads numbers from elsewhere than {NUMBERS}")


class _Writer:
    """Writes the program of one model."""

    def __init__(
        self, parts: Parts, rotations: Mapping[str, Rotations], length: int, options: int
    ) -> None:
        self._parts = parts
        self._length, self._options = length, options
        self._width = int(parts.embedding.shape[1])
        self._turns = {
            kind: tuple(_array(each[:length]) for each in turns.at_all())
            for kind, turns in rotations.items()
        }

    def program(self) -> Any:
        """Give the program: inputs as `forward` gives them, logits and the first token's state."""
        length, options = self._length, self._options

        def laya(ids: Var, kind: Var, full: Var, sliding: Var, options: Var, unseen: Var) -> Any:
            hidden = self._head(self._encode(ids, kind, full, sliding), full)
            return self._scores(hidden, options, unseen)

        inputs = [
            mb.TensorSpec((length,), dtype=types.int32),
            mb.TensorSpec((1,), dtype=types.int32),
            mb.TensorSpec((1, length, length)),
            mb.TensorSpec((1, length, length)),
            mb.TensorSpec((options,), dtype=types.int32),
            mb.TensorSpec((1, options)),
        ]
        return mb.program(input_specs=inputs, opset_version=ct.target.macOS14)(laya)

    def _encode(self, ids: Var, kind: Var, full: Var, sliding: Var) -> Var:
        parts = self._parts
        tokens = mb.gather(x=_array(parts.embedding), indices=ids, axis=0)
        hidden = normed = _normed(tokens, parts.embedding_norm)
        if (first := parts.layers[0].attention_norm) is not None:
            normed = _normed(hidden, first)
        norms = [*(layer.attention_norm for layer in parts.layers[1:]), parts.final_norm]
        for layer, reach, norm in zip(parts.layers, parts.kinds, norms, strict=True):
            queries, keys, values = self._triple(normed, layer.qkv, parts.heads)
            seen = self._attended(
                self._turned(queries, reach),
                self._turned(keys, reach),
                values,
                sliding if reach == SLIDING else full,
            )
            hidden = mb.add(x=hidden, y=_projected(seen, layer.out))
            wide, half = _normed(hidden, layer.mlp_norm), layer.wide.weight.shape[0] // 2
            inner = _activated(_projected(wide, layer.wide, 0, half), parts.act)
            gated = mb.mul(x=inner, y=_projected(wide, layer.wide, half, 2 * half))
            hidden = mb.add(x=hidden, y=_projected(gated, layer.narrow))
            normed = _normed(hidden, norm) if norm is not None else hidden
        return mb.add(x=normed, y=mb.gather(x=_array(parts.types), indices=kind, axis=0))

    def _head(self, hidden: Var, full: Var) -> Var:
        parts = self._parts
        for layer in parts.head:
            normed = _normed(hidden, layer.attention_norm)
            triple = self._triple(normed, layer.qkv, parts.head_heads)
            hidden = mb.add(x=hidden, y=_projected(self._attended(*triple, full), layer.out))
            inner = _projected(_normed(hidden, layer.mlp_norm), layer.wide)
            activated = _activated(inner, parts.head_act)
            hidden = mb.add(x=hidden, y=_projected(activated, layer.narrow))
        return hidden

    def _scores(self, hidden: Var, options: Var, unseen: Var) -> tuple[Var, Var]:
        decision = self._parts.decision
        chosen = _normed(mb.gather(x=hidden, indices=options, axis=0), decision.norm)
        inner = mb.gelu(x=_projected(chosen, decision.inner), mode="EXACT")
        scores = mb.reshape(x=_projected(inner, decision.score), shape=[1, self._options])
        first = mb.slice_by_size(x=hidden, begin=[0, 0], size=[1, self._width], name="first")
        return mb.add(x=scores, y=unseen, name="logits"), first

    def _triple(self, normed: Var, qkv: Linear, heads: int) -> tuple[Var, Var, Var]:
        """Give queries, keys and values, each heads by tokens by size."""
        width = self._width
        queries, keys, values = (
            mb.transpose(
                x=mb.reshape(
                    x=_projected(normed, qkv, start, start + width),
                    shape=[-1, heads, width // heads],
                ),
                perm=[1, 0, 2],
            )
            for start in (0, width, 2 * width)
        )
        return queries, keys, values

    def _turned(self, tokens: Var, kind: str) -> Var:
        cosines, sines = self._turns[kind]
        first, second = mb.split(x=tokens, num_splits=2, axis=-1)
        rolled = mb.concat(values=[second, first], axis=-1)
        return mb.add(x=mb.mul(x=tokens, y=cosines), y=mb.mul(x=rolled, y=sines))

    def _attended(self, queries: Var, keys: Var, values: Var, mask: Var) -> Var:
        # Before the product, which could otherwise be past what half precision holds.
        queries = mb.mul(x=queries, y=np.float32(queries.shape[-1] ** -0.5))
        scores = mb.add(x=mb.matmul(x=queries, y=keys, transpose_y=True), y=mask)
        seen = mb.matmul(x=mb.softmax(x=scores, axis=-1), y=values)
        return mb.reshape(x=mb.transpose(x=seen, perm=[1, 0, 2]), shape=[-1, self._width])


def _array(tensor: Tensor) -> Any:
    return tensor.detach().float().numpy()


def _normed(hidden: Var, norm: Norm) -> Var:
    bias = None if norm.bias is None else _array(norm.bias)
    return mb.layer_norm(
        x=hidden, axes=[-1], gamma=_array(norm.weight), beta=bias, epsilon=np.float32(norm.eps)
    )


def _projected(inner: Var, linear: Linear, start: int = 0, end: int | None = None) -> Var:
    bias = None if linear.bias is None else _array(linear.bias[start:end])
    return mb.linear(x=inner, weight=_array(linear.weight[start:end]), bias=bias)


def _activated(inner: Var, act: Activation) -> Var:
    return mb.gelu(x=inner, mode="EXACT") if _name(act) == "gelu" else mb.relu(x=inner)


def _name(act: Activation) -> str:
    return str(getattr(act, "__name__", ""))

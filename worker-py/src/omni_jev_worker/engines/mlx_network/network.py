"""What `network.Network` computes, in MLX: a batch as one list of tokens, without padding.

Rows are kept apart by a mask. The hidden state is float32, whatever the matrices are.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import mlx.core as mx
import mlx.nn as nn
import numpy as np

from omni_jev_worker.collate import Item
from omni_jev_worker.engines.mlx_network.form import NUMBERS, read
from omni_jev_worker.engines.passes import groups, reach
from omni_jev_worker.network.parts import SLIDING
from omni_jev_worker.network.regions import MASKED
from omni_jev_worker.scores import Scores, join
from omni_jev_worker.unpadded import TokenList, token_list

Array = Any
"""MLX's own."""

_ACTIVATIONS: Final = {"gelu": nn.gelu, "relu": nn.relu}


class MlxForward:
    """The pass of one artifact, on MLX's default device. Used by one thread."""

    def __init__(self, folder: Path, window: int) -> None:
        """Load it. Raises what MLX raises."""
        self._form = read(folder)
        self._numbers: dict[str, Array] = mx.load(str(folder / NUMBERS))
        mx.eval(self._numbers)
        self._compute = mx.float16 if self._form.half else mx.float32
        self._width = self._numbers["final_norm.weight"].shape[0]
        self.reach = reach(window)

    def __call__(self, items: Sequence[Item]) -> Scores:
        """Run rows, few at a time."""
        return join([self._run(token_list(group)) for group in groups(items)])

    def _run(self, tokens: TokenList) -> Scores:
        hidden = self._encode(tokens)
        logits, acts = self._decide(self._head(hidden, tokens), tokens)
        mx.eval(logits, acts)
        return Scores(np.array(logits), np.array(acts))

    def _encode(self, tokens: TokenList) -> Array:
        form, numbers = self._form, self._numbers
        rows = tokens.rows
        same = rows[:, None] == rows
        near = np.abs(tokens.positions[:, None] - tokens.positions) <= form.reach
        masks = {True: mx.array(same & near), False: mx.array(same)}
        turns = {kind: self._turns(kind, tokens) for kind in set(form.kinds)}
        hidden = self._normed(numbers["embedding"][mx.array(tokens.ids)], "embedding_norm")
        for at, kind in enumerate(form.kinds):
            name = f"layer{at}"
            normed = hidden
            if f"{name}.attention_norm.weight" in numbers:
                normed = self._normed(hidden, f"{name}.attention_norm")
            qkv = self._projected(normed, f"{name}.qkv").reshape(len(rows), 3, form.heads, -1)
            turned = _turn(qkv[:, :2].astype(mx.float32), *turns[kind]).astype(self._compute)
            seen = self._attended(turned[:, 0], turned[:, 1], qkv[:, 2], masks[kind == SLIDING])
            hidden = hidden + self._projected(seen, f"{name}.out")
            wide = self._projected(self._normed(hidden, f"{name}.mlp_norm"), f"{name}.wide")
            inner, gate = mx.split(wide, 2, axis=-1)
            hidden = hidden + self._projected(
                _ACTIVATIONS[form.act](inner) * gate, f"{name}.narrow"
            )
        kinds = numbers["types"][mx.array(tokens.types)]
        return self._normed(hidden, "final_norm") + kinds

    def _head(self, hidden: Array, tokens: TokenList) -> Array:
        """Give the hidden state of the wanted tokens after laya's head."""
        form, wanted = self._form, mx.array(tokens.wanted)
        rows = tokens.rows
        mask = mx.array(rows[:, None] == rows)
        for at in range(form.head_layers):
            name, last = f"head{at}", at == form.head_layers - 1
            normed = self._normed(hidden, f"{name}.attention_norm", head=True)
            qkv = self._projected(normed, f"{name}.qkv").reshape(len(rows), 3, form.head_heads, -1)
            queries = qkv[:, 0]
            if last:
                queries, hidden = queries[wanted], hidden[wanted]
                mask = mx.array(rows[tokens.wanted][:, None] == rows)
            seen = self._attended(queries, qkv[:, 1], qkv[:, 2], mask)
            hidden = hidden + self._projected(seen, f"{name}.out")
            normed = self._normed(hidden, f"{name}.mlp_norm", head=True)
            inner = _ACTIVATIONS[form.head_act](self._projected(normed, f"{name}.wide"))
            hidden = hidden + self._projected(inner, f"{name}.narrow")
        return hidden if form.head_layers else hidden[wanted]

    def _decide(self, hidden: Array, tokens: TokenList) -> tuple[Array, Array]:
        """Do the last step: see `regions.decide`."""
        options = self._normed(hidden[mx.array(tokens.options)], "decision.norm", head=True)
        inner = nn.gelu(self._projected(options, "decision.inner")).astype(mx.float32)
        scores = self._projected(inner, "decision.score", mx.float32).squeeze(-1)
        present = mx.array(tokens.present)
        logits = mx.where(present, scores, MASKED)
        likely = mx.softmax(logits, axis=-1)
        count = mx.maximum(present.sum(-1), 2).astype(mx.float32)
        told = (likely * mx.log(mx.maximum(likely, 1e-9))).sum(-1)
        # The two best, where a row may have one option.
        ordered = mx.sort(mx.pad(likely, [(0, 0), (1, 0)]), axis=-1)
        best, second = ordered[:, -1], ordered[:, -2]
        features = mx.stack([best, best - second, -told / mx.log(count), count / 255.0], axis=-1)
        pooled = mx.concatenate([hidden[mx.array(tokens.firsts)], features], axis=-1)
        act = nn.gelu(self._projected(pooled, "decision.act_inner", mx.float32))
        return logits, mx.softmax(self._projected(act, "decision.act", mx.float32), axis=-1)

    def _attended(self, queries: Array, keys: Array, values: Array, mask: Array) -> Array:
        """Give tokens by width from tokens by heads by size each."""
        queries, keys, values = (each.transpose(1, 0, 2)[None] for each in (queries, keys, values))
        scale = queries.shape[-1] ** -0.5
        seen = mx.fast.scaled_dot_product_attention(queries, keys, values, scale=scale, mask=mask)
        return seen[0].transpose(1, 0, 2).reshape(-1, self._width)

    def _turns(self, kind: str, tokens: TokenList) -> tuple[Array, Array]:
        """Give cosines and sines, tokens by 1 by 1 by size."""
        places = mx.array(tokens.positions)
        found = (self._numbers[f"turns.{kind}.{part}"][places] for part in ("cosines", "sines"))
        cosines, sines = (each[:, None, None] for each in found)
        return cosines, sines

    def _normed(self, hidden: Array, name: str, *, head: bool = False) -> Array:
        weight, bias = self._numbers[f"{name}.weight"], self._numbers.get(f"{name}.bias")
        eps = self._form.head_eps if head else self._form.eps
        return mx.fast.layer_norm(hidden.astype(mx.float32), weight, bias, eps)

    def _projected(self, inner: Array, name: str, compute: Any = None) -> Array:
        compute = compute if compute is not None else self._compute
        weight, bias = self._numbers[f"{name}.weight"], self._numbers.get(f"{name}.bias")
        found = inner.astype(compute) @ weight.astype(compute).T
        return found if bias is None else found + bias.astype(compute)


def _turn(tokens: Array, cosines: Array, sines: Array) -> Array:
    """Turn by place; the first half of the sines has the other sign (see `regions`)."""
    return tokens * cosines + mx.roll(tokens, tokens.shape[-1] // 2, -1) * sines

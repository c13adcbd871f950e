"""Attention within rows of unlike lengths, in half precision, as one Triton kernel.

For the lengths of decisions, where a general kernel spends its time on being general: a block of
queries looks only at the keys in reach, which in most of ModernBERT's layers are few. The sums are
in float32 (the online softmax of FlashAttention, https://arxiv.org/abs/2205.14135).
"""

from typing import Final

import torch
import triton
import triton.language as tl

from omni_jev_worker.network.parts import Tensor

_BLOCK: Final = 64
_SIZES: Final = (16, 32, 64, 128)
_LOG2_E: Final = 1.4426950408889634


def can_take(size: int) -> bool:
    """Say whether the kernel takes attention heads of this size."""
    return size in _SIZES


# Triton reads annotations of arguments as its own, so those of numbers and pointers have none.
@triton.jit  # type: ignore[untyped-decorator]
def _kernel(  # type: ignore[no-untyped-def]
    queries,
    keys,
    values,
    seen,
    ends,
    query_stride,
    key_stride,
    value_stride,
    seen_stride,
    scale,
    REACH: tl.constexpr,  # noqa: N803 (Triton's way to write what is fixed at compile time)
    SIZE: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
):
    """One block of queries of one head of one row."""
    row = tl.program_id(2)
    begin = tl.load(ends + row)
    length = tl.load(ends + row + 1) - begin
    first = tl.program_id(0) * BLOCK
    if first >= length:
        return
    asking = first + tl.arange(0, BLOCK)
    number = tl.arange(0, SIZE)
    column = tl.program_id(1) * SIZE + number
    there = (asking < length)[:, None]
    q = tl.load(
        queries + (begin + asking)[:, None] * query_stride + column[None, :], mask=there, other=0.0
    )
    low = 0
    high = length
    if REACH >= 0:
        low = tl.maximum(first - REACH, 0) // BLOCK * BLOCK
        high = tl.minimum(first + BLOCK + REACH, length)
    best = tl.full([BLOCK], -1e30, tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    mixed = tl.zeros([BLOCK, SIZE], tl.float32)
    for start in range(low, high, BLOCK):
        asked = start + tl.arange(0, BLOCK)
        k = tl.load(
            keys + (begin + asked)[None, :] * key_stride + column[:, None],
            mask=(asked < length)[None, :],
            other=0.0,
        )
        v = tl.load(
            values + (begin + asked)[:, None] * value_stride + column[None, :],
            mask=(asked < length)[:, None],
            other=0.0,
        )
        visible = (asked < length)[None, :]
        if REACH >= 0:
            apart = asking[:, None] - asked[None, :]
            visible = visible & (apart <= REACH) & (apart >= -REACH)
        # Finite, so that a query that sees nothing in this block is no NaN: what it adds here is
        # forgotten when it comes to a key that it sees, and it sees itself.
        score = tl.where(visible, tl.dot(q, k) * scale, -1e30)
        better = tl.maximum(best, tl.max(score, 1))
        power = tl.math.exp2(score - better[:, None])
        kept = tl.math.exp2(best - better)
        total = total * kept + tl.sum(power, 1)
        mixed = mixed * kept[:, None] + tl.dot(power.to(v.dtype), v)
        best = better
    tl.store(
        seen + (begin + asking)[:, None] * seen_stride + column[None, :],
        (mixed / total[:, None]).to(seen.dtype.element_ty),
        mask=there,
    )


def attend(
    queries: Tensor, keys: Tensor, values: Tensor, ends: Tensor, longest: int, reach: int | None
) -> Tensor:
    """Let each row's tokens see those of their row, within reach if there is one.

    Queries, keys and values are tokens by heads by size, the last dimension dense, in half
    precision; ``ends`` is where rows end, with a 0 first, int32; no row is longer than ``longest``.
    Gives tokens by width. Nothing is written for tokens of no row.
    """
    tokens, heads, size = queries.shape
    seen = torch.empty(tokens, heads * size, dtype=queries.dtype, device=queries.device)
    grid = (triton.cdiv(longest, _BLOCK), heads, len(ends) - 1)
    _kernel[grid](
        queries,
        keys,
        values,
        seen,
        ends,
        queries.stride(0),
        keys.stride(0),
        values.stride(0),
        seen.stride(0),
        _LOG2_E / size**0.5,
        REACH=-1 if reach is None else reach,
        SIZE=size,
        BLOCK=_BLOCK,
        num_warps=4,
        num_stages=2,
    )
    return seen

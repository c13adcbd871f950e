"""How the rows in one list of tokens are kept apart in attention: three ways for one network.

Each takes queries, keys and values, tokens by heads by size, and gives tokens by width.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import torch
from torch.nn import functional

from omni_jev_worker.network.parts import Tensor

# Added to what a token must not see. Finite: a padded token that sees nothing would otherwise be
# not a number, and nothing times that is still not a number for those that do not look at it.
_UNSEEN: Final = -3e4


class Attention(Protocol):
    """The rows of one batch."""

    def over(self, queries: Tensor, keys: Tensor, values: Tensor, *, sliding: bool) -> Tensor:
        """Let each row's tokens see those of their row; where ``sliding``, those in reach only."""


class RowByRow:
    """One call for each row: nothing is padded, and a call is cheap on a CPU."""

    def __init__(self, lengths: Sequence[int], masks: "SlidingMasks") -> None:
        self._lengths = lengths
        self._none: list[Tensor | None] = [None] * len(lengths)
        self._masks = masks.of(lengths)

    def over(self, queries: Tensor, keys: Tensor, values: Tensor, *, sliding: bool) -> Tensor:
        """Let each row's tokens see those of their row."""
        masks = self._masks if sliding else self._none
        return _each(queries, keys, values, self._lengths, self._lengths, masks)

    def some(self, queries: Tensor, keys: Tensor, values: Tensor, asking: Sequence[int]) -> Tensor:
        """Let so many tokens of each row, whose queries these are, see all those of their row."""
        return _each(queries, keys, values, asking, self._lengths, self._none)


class SlidingMasks:
    """Which tokens see each other in a layer with a window, made once for all rows."""

    def __init__(self, reach: int, dtype: torch.dtype) -> None:
        self._reach = reach
        self._mask = torch.zeros(0, 0, dtype=dtype)

    def of(self, lengths: Sequence[int]) -> list[Tensor | None]:
        """Give what is added to the attention of each row; none where every token sees all."""
        longest = max(lengths)
        if longest <= self._reach + 1:
            return [None] * len(lengths)
        if len(self._mask) < longest:
            self._mask = torch.zeros(longest, longest, dtype=self._mask.dtype).masked_fill_(
                _far(longest, self._reach, self._mask.device), float("-inf")
            )
        return [self._mask[:n, :n] if n > self._reach + 1 else None for n in lengths]


Kernel = Callable[[Tensor, Tensor, Tensor, Tensor, int, int | None], Tensor]
"""Attention of rows of unlike lengths; see `triton_attention.attend`."""


def flash_attention(
    queries: Tensor, keys: Tensor, values: Tensor, ends: Tensor, longest: int, reach: int | None
) -> Tensor:
    """Attend by the kernel that torch brings for CUDA, in half precision."""
    # Underneath `torch.nn.attention.varlen`, which on some devices takes other kernels that
    # prepare themselves anew for each shape.
    seen: Any = torch.ops.aten._flash_attention_forward(
        queries,
        keys,
        values,
        ends,
        ends,
        longest,
        longest,
        dropout_p=0.0,
        is_causal=False,
        return_debug_mask=False,
        window_size_left=reach,
        window_size_right=reach,
    )
    return torch.as_tensor(seen[0]).flatten(1)


class Unpadded:
    """One call for all rows of unlike lengths."""

    def __init__(self, ends: Tensor, longest: int, reach: int, kernel: Kernel) -> None:
        """Take where rows end, and what attends.

        ``ends`` is rows and one more, int32, the first 0; ``longest`` is no shorter than any row.
        """
        self._ends = ends
        self._longest = longest
        self._reach = reach if longest > reach + 1 else None
        self._kernel = kernel

    def over(self, queries: Tensor, keys: Tensor, values: Tensor, *, sliding: bool) -> Tensor:
        """Let each row's tokens see those of their row; tokens past all rows get anything."""
        reach = self._reach if sliding else None
        return self._kernel(queries, keys, values, self._ends, self._longest, reach)


class Padded:
    """Rows of one padded length, by the attention that every device has."""

    def __init__(self, lengths: Tensor, length: int, reach: int, dtype: torch.dtype) -> None:
        """Take the tokens of each row, int, on the device; and the padded length of all of them."""
        self._rows, self._length = lengths.shape[0], length
        place = torch.arange(length, device=lengths.device)
        padding = place >= lengths[:, None]
        self._full = _mask(padding[:, None, None, :].expand(-1, 1, length, -1), dtype)
        self._sliding = self._full
        if length > reach + 1:
            far = _far(length, reach, lengths.device)
            self._sliding = _mask(padding[:, None, None, :] | far, dtype)

    def over(self, queries: Tensor, keys: Tensor, values: Tensor, *, sliding: bool) -> Tensor:
        """Let each row's tokens see those of their row that are no padding."""
        mask = self._sliding if sliding else self._full
        seen = functional.scaled_dot_product_attention(
            self._shaped(queries), self._shaped(keys), self._shaped(values), attn_mask=mask
        )
        return seen.transpose(1, 2).reshape(self._rows * self._length, -1)

    def _shaped(self, tokens: Tensor) -> Tensor:
        return tokens.view(self._rows, self._length, *tokens.shape[1:]).transpose(1, 2)


def _far(length: int, reach: int, device: torch.device) -> Tensor:
    place = torch.arange(length, device=device)
    return (place[:, None] - place).abs() > reach


def _mask(unseen: Tensor, dtype: torch.dtype) -> Tensor:
    return torch.zeros(unseen.shape, dtype=dtype, device=unseen.device).masked_fill_(
        unseen, _UNSEEN
    )


def _each(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    asking: Sequence[int],
    asked: Sequence[int],
    masks: Sequence[Tensor | None],
) -> Tensor:
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

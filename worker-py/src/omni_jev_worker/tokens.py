"""Texts to token numbers, as a checkpoint's tokenizer reads them, without its wrapping.

transformers makes several objects of each text, of which only the numbers are used here.
"""

from collections.abc import Callable
from typing import Any, cast

from omni_jev_worker import words

Tokenize = Callable[[list[str]], list[list[int]]]
"""Texts to token numbers: nothing added, nothing cut. For one thread at a time."""


def reading_of(tokenizer: Any) -> Tokenize:
    """Give the shortest way to the numbers that a transformers tokenizer gives.

    That is its own backend; one that has none is called itself.
    """
    backend: Any = getattr(tokenizer, "backend_tokenizer", None)
    if not hasattr(backend, "encode_batch_fast") or tokenizer.split_special_tokens:
        return _wrapped(tokenizer)

    def tokenize(texts: list[str]) -> list[list[int]]:
        # Whoever else calls the tokenizer may have left these set.
        if backend.truncation is not None:
            backend.no_truncation()
        if backend.padding is not None:
            backend.no_padding()
        # Without the places of the tokens in the text, and outside the interpreter's lock.
        encoded = backend.encode_batch_fast(texts, add_special_tokens=False)
        return [each.ids for each in encoded]

    return words.remembering(backend, tokenize)


def around(tokenizer: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Give what a tokenizer puts before and after a text; nothing where it adds nothing."""
    bare = tokenizer("a", add_special_tokens=False)["input_ids"]
    whole = tokenizer("a")["input_ids"]
    for start in range(len(whole) - len(bare) + 1):
        if whole[start : start + len(bare)] == bare:
            return tuple(whole[:start]), tuple(whole[start + len(bare) :])
    return (), ()


def _wrapped(tokenizer: Any) -> Tokenize:
    def tokenize(texts: list[str]) -> list[list[int]]:
        # Over the model's length it would log a warning.
        encoded = tokenizer(texts, add_special_tokens=False, verbose=False)
        return cast("list[list[int]]", encoded["input_ids"])

    return tokenize

"""Remembers the token numbers of words: a text's are those of its words, one after the other.

That holds for tokenizers that cut a text into words before all else, and by rules that are known
here: each word's numbers then depend on nothing beside it. Only texts of ASCII characters are read
so, as normal forms leave those alone, and only where no token that the tokenizer looks for ahead of
its rules (``[SEP]``, two spaces) can be in them. Everything else is left to the tokenizer.

A tokenizer spends most of its time on cutting and on merging letters that it has merged before: of
480 known words these are read in an eighth of that (`benchmarks/gpu/NOTES.md`).
"""

import json
import re
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, Final

from tokenizers.models import BPE

Tokens = list[int]
Tokenize = Callable[[list[str]], list[Tokens]]

_KEPT: Final = 16384
_LONGEST: Final = 48

# A word takes the tokenizer four times as long alone as in its text.
_NEW_ALONE: Final = 4
# Of a text with many new words so many are learned at a time.
_LEARNED: Final = 16

_BYTE_LEVEL: Final = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
# These leave ASCII texts as they are, or change the case of their letters.
_KEEP_ASCII: Final = {"NFC", "NFD", "NFKC", "NFKD", "Lowercase"}

_BERT: Final = {"type": "BertPreTokenizer"}
_BYTES: Final = {**_BYTE_LEVEL, "use_regex": False}

# GPT-2's rule (openai/gpt-2, src/encoder.py) for ASCII, which ModernBERT's tokenizer has as well.
# What it finds at a place is found there in that piece alone too, so a word alone is one word.
_GPT2_WORD: Final = re.compile(
    r"'(?:s|t|re|ve|m|ll|d)| ?[A-Za-z]+| ?[0-9]+| ?[^\t-\r A-Za-z0-9]+"
    r"|[\t-\r ]+(?![^\t-\r ])|[\t-\r ]+"
)
# The same for a tokenizer that makes letters small before it applies the rule.
_GPT2_WORD_MADE_SMALL: Final = re.compile(_GPT2_WORD.pattern, re.IGNORECASE)
# BERT's: white space parts words and is dropped, each punctuation mark is a word. A space before a
# word is taken along here, to cut less.
_BERT_WORD: Final = re.compile(r" ?[^\t-\r !-/:-@\[-`{-~]+|.", re.DOTALL)

_TRIED: Final = (
    "It's 10:45 and order 20391 hasn't arrived; we'll cancel (again)!",
    "a  b   c \n\td\r\ne   ",
    "x_y-z@example.com //www.example.com/?a=1&b=[2] 3.5% #7 '''quoted'' \x00\x1c\x7f",
    " leading, trailing ",
    "",
)


class Words:
    """A tokenizer that remembers words. For one thread at a time."""

    def __init__(
        self, tokenize: Tokenize, cut: Callable[[str], list[str]], watched: Sequence[str]
    ) -> None:
        """Take the tokenizer, what cuts an ASCII text into its words, and what keeps it from that.

        A text in which something of ``watched`` (in small letters) is found is not cut.
        """
        self._tokenize = tokenize
        self._cut = cut
        self._watched = watched
        # What is not asked for while as much again is learned is forgotten.
        self._known: dict[str, tuple[int, ...]] = {}
        self._older: dict[str, tuple[int, ...]] = {}

    def __call__(self, texts: list[str]) -> list[Tokens]:
        """Give the numbers of each text."""
        found = [self._read(text) for text in texts]
        left = [at for at, tokens in enumerate(found) if tokens is None]
        if left:
            for at, tokens in zip(left, self._tokenize([texts[at] for at in left]), strict=True):
                found[at] = tokens
        return [tokens for tokens in found if tokens is not None]

    def _read(self, text: str) -> Tokens | None:
        """Give a text's numbers; none where the tokenizer had better read it whole."""
        if not text.isascii():
            return None
        small = text.lower()
        if any(part in small for part in self._watched):
            return None
        words = self._cut(text)
        try:
            return list(chain.from_iterable(map(self._known.__getitem__, words)))
        except KeyError:
            return self._read_new(words)

    def _read_new(self, words: list[str]) -> Tokens | None:
        known, older = self._known, self._older
        new = []
        for word in dict.fromkeys(words):
            if word in known:
                continue
            if word in older:
                known[word] = older[word]
            else:
                new.append(word)
        few = len(new) * _NEW_ALONE <= len(words)
        learned = self._learn(new if few else new[:_LEARNED])
        if not few:
            return None
        # What was learned may be too long to be kept, and what is kept now among the older.
        places = (learned, known, older)
        return [token for word in words for token in _first(places, word)]

    def _learn(self, words: list[str]) -> dict[str, tuple[int, ...]]:
        numbers = self._tokenize(words) if words else []
        learned = {word: tuple(each) for word, each in zip(words, numbers, strict=True)}
        if len(self._known) >= _KEPT:
            self._known, self._older = {}, self._known
        self._known.update((word, each) for word, each in learned.items() if len(word) <= _LONGEST)
        return learned


def _first(places: Sequence[dict[str, tuple[int, ...]]], word: str) -> tuple[int, ...]:
    return next(place[word] for place in places if word in place)


def remembering(backend: Any, tokenize: Tokenize) -> Tokenize:
    """Give ``tokenize`` with a memory of words, or as it is where the words' rules are not known.

    ``backend`` is the `tokenizers.Tokenizer` that it asks.
    """
    cut = _rule(backend)
    if cut is None:
        return tokenize
    added = [token.content for token in backend.get_added_tokens_decoder().values()]
    words = Words(tokenize, cut.findall, _watched(added))
    # A version of the library that reads otherwise than is known here is believed.
    tried = [text for text in _TRIED for _ in range(2)]
    if any(words([text]) != tokenize([text]) for text in tried):
        return tokenize
    return words


def _rule(backend: Any) -> "re.Pattern[str] | None":
    """Give what cuts texts as this tokenizer does; none where that is not known."""
    if not isinstance(backend.model, BPE) or backend.model.dropout:
        return None
    changes = _steps(backend.normalizer, "normalizers")
    if not all(each["type"] in _KEEP_ASCII for each in changes):
        return None
    steps = _steps(backend.pre_tokenizer, "pretokenizers")
    if steps == [_BYTE_LEVEL]:
        makes_small = any(each["type"] == "Lowercase" for each in changes)
        return _GPT2_WORD_MADE_SMALL if makes_small else _GPT2_WORD
    if steps[:1] == [_BERT] and all(
        each == _BYTES or each["type"] == "Digits" for each in steps[1:]
    ):
        return _BERT_WORD
    return None


def _steps(part: Any, several: str) -> list[Any]:
    """Give what a normalizer or pre-tokenizer does, in order, as its file says it."""
    if part is None:
        return []
    told = json.loads(part.__getstate__())
    steps = told[several] if told["type"] == "Sequence" else [told]
    # Where a token lies in its text is not asked for.
    return [{key: step[key] for key in step if key != "trim_offsets"} for step in steps]


def _watched(added: Sequence[str]) -> list[str]:
    """Give what is in a text, made small, that has one of these tokens: how they begin."""
    return sorted({token.lower()[:2] for token in added if token.isascii()})

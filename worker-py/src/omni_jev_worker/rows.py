"""Questions and a state to rows of token numbers: Laya's layout, and how much of them was cut.

A row is ``[CLS] <type> question: <instructions> [SEP] ([MASK] option)* [SEP] state [SEP]``. It is
laid out as laya's ``build_sequence`` does it (the tests compare the two), which does not tell what
it cuts. Options that do not fit one row, which laya refuses, get several: see `RowBuilder`.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Final

Tokens = list[int]
Few = tuple[int, ...]

# Laya's numbers: the most tokens of an option, and what is left to the options and the instructions
# where both are long.
_OPTION_TOKENS: Final = 48
_LEAST_OPTION: Final = 4
_LEAST_HEAD: Final = 8
_HEAD_RESERVE: Final = 16

# So few options share a row at least where they do not fit one: a question of 255 options costs 16
# rows at most, and its options keep 11 tokens each where the head has Laya's usual 192.
_GROUP: Final = 16

_CACHED_TEXTS: Final = 4096
_CACHED_CHARACTERS: Final = 512
_CACHED_QUESTIONS: Final = 512
_CACHED_QUESTION_CHARACTERS: Final = 2048


@dataclass(frozen=True, slots=True)
class Specials:
    """The tokenizer's special tokens that a row is made of."""

    cls: int
    sep: int
    mask: int
    mask_text: str
    """A text that says this is read as if it said a space: it would make an option of its own."""
    around: tuple[Few, Few] = ((), ())
    """What the tokenizer itself puts before and after a text that stands alone."""


@dataclass(frozen=True, slots=True)
class Text:
    """A question's texts, as the model reads them."""

    kind: str
    instructions: str
    options: Sequence[str]


@dataclass(frozen=True, slots=True)
class Lost:
    """Tokens that were cut from one answer's rows."""

    state: int = 0
    """The most that any of its rows lost of the state."""
    options: int = 0
    """Of all its options together."""
    instructions: int = 0
    """The most that any of its rows lost of the instructions."""

    def __bool__(self) -> bool:
        return bool(self.state or self.options or self.instructions)


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the batch."""

    ids: Tokens
    markers: list[int]
    """Where its options are, in their order."""


class RowBuilder:
    """Lays rows out for one checkpoint. Used by one thread at a time, as its tokenizer is.

    Options fit one row when laya takes them in one. Others are dealt out in order, to the fewest
    groups of nearly equal size in which no option loses a token that it would keep alone; but to no
    more groups than leave 16 options in each, where each keeps its first tokens only.
    """

    def __init__(
        self,
        tokenize: Callable[[list[str]], list[Tokens]],
        specials: Specials,
        *,
        window: int,
        head: int,
        keep_ends: bool = False,
    ) -> None:
        """Take the tokenizer (texts to token numbers, nothing added) and laya's two limits.

        ``window`` is ``max_len`` and ``head`` is ``head_max_len``. ``keep_ends`` is for a tokenizer
        that cuts a long option at its start.
        """
        self._tokenize = _Cached(tokenize)
        self._specials = specials
        self._window = window
        self._budget = head
        self._keep_ends = keep_ends
        self._known: OrderedDict[tuple[str, ...], _Laid] = OrderedDict()

    def state(self, text: str) -> Tokens:
        """Tokenize a state, once for all questions about it."""
        return self._tokenize([self._clean(text)])[0]

    def text(self, text: str, *, is_option: bool) -> Tokens:
        """Lay out a row of one text alone: as much of its start as fits, an option's as in a row.

        Laya's ``embed_fn_from_agent`` reads texts so.
        """
        before, after = self._specials.around
        most = _OPTION_TOKENS if is_option else self._window - len(before) - len(after)
        return [*before, *self.state(text)[:most], *after]

    def most_rows(self, options: int) -> int:
        """Give the most rows that a question of so many options can need, without reading them."""
        if self._budget + 2 >= self._window:
            # The instructions alone can fill the window before the first option.
            return options
        # So many fit after the shortest head, with four tokens each.
        fit = (self._window - _LEAST_HEAD - 3) // _LEAST_OPTION + 1
        return 1 if options <= fit else -(-options // min(_GROUP, fit))

    def rows(self, question: Text, state: Tokens, *, newest_last: bool) -> tuple[list[Row], Lost]:
        """Lay out the rows of a question about a tokenized state.

        ``newest_last`` keeps the end of a state that is too long, and not its start.
        """
        laid = self._laid(question)
        rows = []
        state_lost = 0
        for head in laid.heads:
            room = max(0, self._window - len(head.ids) - 1)
            kept = state[max(0, len(state) - room) :] if newest_last else state[:room]
            state_lost = max(state_lost, len(state) - len(kept))
            ids = [*head.ids, *kept, self._specials.sep][: self._window]
            rows.append(Row(ids, head.markers))
        return rows, Lost(state_lost, laid.options_lost, laid.instructions_lost)

    def _laid(self, question: Text) -> "_Laid":
        """Lay out the rows before their state, which are the same for state after state."""
        key = (question.kind, question.instructions, *question.options)
        laid = self._known.get(key)
        if laid is not None:
            self._known.move_to_end(key)
            return laid
        laid = self._lay(question)
        if sum(map(len, key)) <= _CACHED_QUESTION_CHARACTERS:
            self._known[key] = laid
            if len(self._known) > _CACHED_QUESTIONS:
                self._known.popitem(last=False)
        return laid

    def _lay(self, question: Text) -> "_Laid":
        lead = f"{question.kind} question: {self._clean(question.instructions)}"
        head, *options = self._tokenize([lead, *(f" {self._clean(o)}" for o in question.options)])
        marked = [[self._specials.mask, *self._shorten(tokens)] for tokens in options]
        heads = [self._head(head, group) for group in self._groups(head, marked)]
        whole = sum(len(tokens) + 1 for tokens in options)
        return _Laid(
            heads,
            options_lost=whole - sum(each.option_tokens for each in heads),
            instructions_lost=max(each.instructions_lost for each in heads),
        )

    def _clean(self, text: str) -> str:
        return text.replace(self._specials.mask_text, " ")

    def _shorten(self, option: Tokens) -> Tokens:
        return option[-_OPTION_TOKENS:] if self._keep_ends else option[:_OPTION_TOKENS]

    def _groups(self, head: Tokens, options: list[Tokens]) -> list[list[Tokens]]:
        if self._fits(head, options):
            return [options]
        most = -(-len(options) // _GROUP)
        for count in range(2, len(options) + 1):
            groups = _deal(options, count)
            roomy = all(self._keeps_all(group) for group in groups)
            if (roomy or count >= most) and all(self._fits(head, group) for group in groups):
                return groups
        return [[option] for option in options]

    def _keeps_all(self, options: list[Tokens]) -> bool:
        return sum(map(len, options)) + _HEAD_RESERVE <= self._budget

    def _fits(self, head: Tokens, options: list[Tokens]) -> bool:
        return self._head(head, options).markers[-1] < self._window

    def _head(self, head: Tokens, options: list[Tokens]) -> "_Head":
        left = self._budget - sum(map(len, options))
        if left < _HEAD_RESERVE:
            each = max(_LEAST_OPTION, (self._budget - _HEAD_RESERVE) // max(1, len(options)))
            options = [option[:each] for option in options]
            left = self._budget - sum(map(len, options))
        kept = head[: max(_LEAST_HEAD, left)]
        ids = [self._specials.cls, *kept, self._specials.sep]
        markers = []
        for option in options:
            markers.append(len(ids))
            ids.extend(option)
        past_the_window = max(0, len(ids) - self._window)
        ids.append(self._specials.sep)
        return _Head(
            ids=ids,
            markers=markers,
            option_tokens=sum(map(len, options)) - past_the_window,
            instructions_lost=len(head) - len(kept),
        )


@dataclass(frozen=True, slots=True)
class _Head:
    """A row before its state."""

    ids: Tokens
    markers: list[int]
    option_tokens: int
    instructions_lost: int


@dataclass(frozen=True, slots=True)
class _Laid:
    """A question's rows before their state."""

    heads: Sequence[_Head]
    options_lost: int
    instructions_lost: int


def _deal(options: list[Tokens], count: int) -> list[list[Tokens]]:
    """Cut a list into parts whose sizes differ by one at most."""
    size, more = divmod(len(options), count)
    sizes = [size + 1] * more + [size] * (count - more)
    return [options[start:end] for start, end in pairwise([0, *accumulate(sizes)])]


class _Cached:
    """A tokenizer that remembers short texts: the same questions are asked of state after state."""

    def __init__(self, tokenize: Callable[[list[str]], list[Tokens]]) -> None:
        self._tokenize = tokenize
        self._known: OrderedDict[str, Tokens] = OrderedDict()

    def __call__(self, texts: list[str]) -> list[Tokens]:
        known = self._known
        new = [text for text in dict.fromkeys(texts) if text not in known]
        found = dict(zip(new, self._tokenize(new), strict=True)) if new else {}
        tokens = [found[text] if text in found else known[text] for text in texts]
        for text in texts:
            if text in found and len(text) <= _CACHED_CHARACTERS:
                known[text] = found[text]
            elif text in known:
                known.move_to_end(text)
        while len(known) > _CACHED_TEXTS:
            known.popitem(last=False)
        return tokens

"""The requests: all different, of exact lengths in tokens by the checkpoint's own tokenizer.

A row of the model is ``[CLS] <type> question: <instructions> [SEP] ([MASK] option)* [SEP] state
[SEP]``. States are made of words that are one token each, so that a row can have any length; what
servers count (`usage.input_tokens`) is compared with it at each answer.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks.gpu.connection import post

Question = dict[str, Any]

SHORTEST: Final = 48
LONGEST: Final = 512
REFERENCE_REQUESTS: Final = 30

QUESTIONS: Final[tuple[Question, ...]] = (
    {"type": "noul", "instructions": "Is it urgent?"},
    {
        "type": "choice",
        "instructions": "Which team?",
        "criteria": {"delivery": None, "billing": None, "sales": None},
    },
    {
        "type": "score",
        "instructions": "How angry?",
        "criteria": ["calm", "annoyed", "angry", "furious"],
    },
    {"type": "noul", "instructions": "Does the writer want money back?"},
    {
        "type": "choice",
        "instructions": "What is it about?",
        "criteria": {"a parcel": "how it came", "a price": None, "a login": None, "other": None},
    },
    {"type": "score", "instructions": "How long has it lasted?", "criteria": ["days", "weeks"]},
)
ONE: Final = QUESTIONS[:1]


class Item(NamedTuple):
    """A request as it is sent, and what shows that an answer is its own."""

    request: bytes
    mark: bytes
    """Begins the id of each of its questions, and of no other request's."""
    questions: int
    tokens: int
    """Of all its rows together; 0 where answers may say any number, or none."""


class Workload:
    """Makes requests for one checkpoint; the same ones for the same seed."""

    def __init__(self, folder: Path, seed: int = 20261130) -> None:
        """Read the tokenizer of a checkpoint's folder."""
        from tokenizers import Tokenizer

        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer" / "tokenizer.json"))
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._chance = random.Random(seed)
        self._made = 0
        self.words = self._single_words()
        """Plain ones that are one token each."""

    def tokens(self, text: str) -> int:
        """Count a text's tokens."""
        return len(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def fixed(self, question: Question) -> int:
        """Count the tokens of a question's row without its state's."""
        from laya.common import render_options

        form = {
            "t": question["type"],
            "ins": question["instructions"],
            "crit": question.get("criteria"),
        }
        head = self.tokens(f"{form['t']} question: {form['ins']}")
        return 4 + head + sum(1 + self.tokens(f" {option}") for option in render_options(form))

    def equally_long(self, questions: Sequence[Question]) -> list[Question]:
        """Lengthen the instructions of some so that the rows of all have the same length."""
        longest = max(self.fixed(question) for question in questions)
        made = []
        for question in questions:
            missing = longest - self.fixed(question)
            words = " ".join(["", *self.words[:missing]])
            longer = {**question, "instructions": question["instructions"] + words}
            if self.fixed(longer) != longest:
                raise ValueError("words that are one token alone are not one token in instructions")
            made.append(longer)
        return made

    def item(self, questions: Sequence[Question], length: int) -> Item:
        """Make a request whose rows, of equally long questions, have so many tokens each."""
        room = length - self.fixed(questions[0])
        if room < 1:
            raise ValueError(f"a row of {length} tokens has no room for a state")
        return self._item(self._state(room), questions, length * len(questions))

    def items(self, questions: Sequence[Question], lengths: Sequence[int]) -> list[Item]:
        """Make a request for each of the lengths."""
        fixed = self.fixed(questions[0])
        states = [self._state(length - fixed) for length in lengths]
        # Many at once: the tokenizer spreads them over the processors.
        encoded = self._tokenizer.encode_batch(states, add_special_tokens=False)
        for state, length, each in zip(states, lengths, encoded, strict=True):
            if len(each.ids) != length - fixed:
                raise ValueError(f"{len(each.ids)} tokens, not {length - fixed}: {state[:80]}")
        return [
            self._item(state, questions, length * len(questions))
            for state, length in zip(states, lengths, strict=True)
        ]

    def mixed(self, count: int = REFERENCE_REQUESTS) -> list[dict[str, Any]]:
        """Make requests of one to six questions of all types and of lengths up to the window."""
        made = []
        for number in range(count):
            # 1 to 6 questions, and all lengths in each.
            asked = self._chance.sample(QUESTIONS, 1 + number % len(QUESTIONS))
            longest = max(self.fixed(question) for question in asked)
            spread = (LONGEST - longest) / max(1, count - 1)
            state = self._state(max(1, round(spread * ((number * 7) % count))))
            made.append(
                {"state": state, "questions": {f"q{n}": each for n, each in enumerate(asked)}}
            )
        return made

    def _item(self, state: str, questions: Sequence[Question], tokens: int) -> Item:
        self._made += 1
        mark = f"q{self._made}."
        named = {f"{mark}{number}": question for number, question in enumerate(questions)}
        body = json.dumps({"state": state, "questions": named}).encode()
        return Item(post(body), f'"{mark}'.encode(), len(questions), tokens)

    def _state(self, tokens: int) -> str:
        return " ".join(self._chance.choices(self.words, k=tokens))

    def _single_words(self) -> list[str]:
        """Find plain words that are one token each, at the start of a text and within it."""
        vocabulary = sorted(self._tokenizer.get_vocab(with_added_tokens=False))
        plain = {token.lstrip("Ġ▁") for token in vocabulary}
        words = sorted(word for word in plain if re.fullmatch(r"[a-z]{3,10}", word))
        good = [word for word in words if self.tokens(word) == 1 and self.tokens(f"to {word}") == 2]
        if len(good) < 100:
            raise ValueError("the tokenizer has too few words of one token")
        return good

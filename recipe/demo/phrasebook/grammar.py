"""Templates with alternatives and slots, the split into seen and unseen wordings, and verbs.

A template is text with ``(one|two)`` for alternatives, ``{slot}`` for a value and ``an?`` for the
article that fits the next word. An alternative may be empty and may hold further templates.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Literal, TypeVar

Part = Literal["train", "validation", "heldout"]
T = TypeVar("T")

# Lists shorter than this are not split.
SHORTEST = 6


def part_at(index: int) -> Part:
    """Whose wording stands at this place of a list: every sixth is held out, and of every twelve
    the fifth validates."""
    if index % 6 == 5:
        return "heldout"
    return "validation" if index % 12 == 4 else "train"


Lookup = Callable[[str, random.Random], str]
# A node is literal text, a slot's name in a one-element tuple, or a list of alternatives.
Node = str | tuple[str] | list[list["Node"]]


def share(values: Sequence[T], part: Part) -> Sequence[T]:
    """The values that ``part`` may use; all parts share a list shorter than six."""
    if len(values) < SHORTEST:
        return values
    return [value for index, value in enumerate(values) if part_at(index) == part]


@cache
def parse(text: str) -> tuple[Node, ...]:
    """Parses a template. Raises ValueError on unbalanced parentheses or braces."""
    nodes, end = _sequence(text, 0, "")
    if end != len(text):
        raise ValueError(f"unbalanced ')' at {end} in template {text!r}")
    return tuple(nodes)


def _sequence(text: str, at: int, stops: str) -> tuple[list[Node], int]:
    nodes: list[Node] = []
    literal = ""
    while at < len(text) and text[at] not in (stops or ")"):
        if text[at] == "(":
            options: list[list[Node]] = []
            while True:
                option, at = _sequence(text, at + 1, "|)")
                options.append(option)
                if at >= len(text):
                    raise ValueError(f"missing ')' in template {text!r}")
                if text[at] == ")":
                    break
            if literal:
                nodes.append(literal)
                literal = ""
            nodes.append(options)
        elif text[at] == "{":
            end = text.index("}", at)
            if literal:
                nodes.append(literal)
                literal = ""
            nodes.append((text[at + 1 : end],))
            at = end
        else:
            literal += text[at]
        at += 1
    if literal:
        nodes.append(literal)
    return nodes, at


# "an?" always takes the fitting article; a plain "a" before a vowel comes from alternatives.
_ARTICLE = re.compile(r"\b(?:([Aa])n\?|(a)) (\w{1,3})")
_CONSONANT = ("us", "uni", "eu", "one")
_SPACES = re.compile(r" {2,}")
_SPACE_BEFORE = re.compile(r" ([,.?!:])")


def expand(text: str, rng: random.Random, lookup: Lookup) -> str:
    """One random reading of a template; ``lookup`` gives the value of a slot."""
    out: list[str] = []
    _walk(parse(text), rng, lookup, out)
    filled = "".join(out)
    filled = _ARTICLE.sub(_article, filled)
    if "  " in filled:
        filled = _SPACES.sub(" ", filled)
    return _SPACE_BEFORE.sub(r"\1", filled).strip()


def _walk(nodes: Sequence[Node], rng: random.Random, lookup: Lookup, out: list[str]) -> None:
    for node in nodes:
        if isinstance(node, str):
            out.append(node)
        elif isinstance(node, tuple):
            out.append(lookup(node[0], rng))
        else:
            _walk(rng.choice(node), rng, lookup, out)


def _article(match: re.Match[str]) -> str:
    article, word = match[1] or match[2], match[3].lower()
    vowel = word[0] in "aeiou" and not word.startswith(_CONSONANT)
    return f"{article}{'n' if vowel else ''} {match[3]}"


_THIRD = {"be": "is", "have": "has", "do": "does", "go": "goes"}
_DOUBLED = frozenset({"get", "put", "cut", "let", "run", "set", "beg", "drop", "chat", "opt"})
_ADVERBS = frozenset({"only", "just", "irreversibly", "permanently"})


def _third(verb: str) -> str:
    if verb in _THIRD:
        return _THIRD[verb]
    if verb.endswith(("s", "x", "ch", "sh", "z", "o")):
        return verb + "es"
    if verb.endswith("y") and verb[-2] not in "aeiou":
        return verb[:-1] + "ies"
    return verb + "s"


def _gerund(verb: str) -> str:
    if verb in _DOUBLED:
        return verb + verb[-1] + "ing"
    if verb.endswith("ie"):
        return verb[:-2] + "ying"
    if verb.endswith("e") and verb != "be" and not verb.endswith("ee"):
        return verb[:-1] + "ing"
    return verb + "ing"


class Deed:
    """A verb phrase in its base form ("ask for a refund") and what can be said with it."""

    def __init__(self, base: str) -> None:
        words = base.split(" ")
        at = 1 if words[0] in _ADVERBS and len(words) > 1 else 0
        self._before = "".join(word + " " for word in words[:at])
        self._verb = words[at]
        self._rest = "".join(" " + word for word in words[at + 1 :])

    @property
    def third(self) -> str:
        """ "asks for a refund" """
        return f"{self._before}{_third(self._verb)}{self._rest}"

    @property
    def gerund(self) -> str:
        """ "asking for a refund" """
        return f"{self._before}{_gerund(self._verb)}{self._rest}"

    def question(self, subject: str) -> str:
        """ "Does the customer ask for a refund", without the question mark."""
        if self._verb == "be":
            return f"Is the {subject} {self._before}{self._rest.strip()}"
        return f"Does the {subject} {self._before}{self._verb}{self._rest}"

    def denial(self, subject: str) -> str:
        """ "the customer does not ask for a refund" """
        if self._verb == "be":
            return f"the {subject} is not {self._before}{self._rest.strip()}"
        return f"the {subject} does not {self._before}{self._verb}{self._rest}"

"""Reads the text files in ``bank/``: the wordings of topics, scales, facts, slots and frames.

Lines: ``key: a; b; c`` is a list, ``+`` a sentence that expresses the topic (or the level, or the
fact), ``-`` one that mentions the topic without expressing it, ``== topic ~ others`` opens a topic
and names those that may be true along with it.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from .grammar import Part, expand, share

FOLDER = Path(__file__).resolve().parent.parent / "bank"
TOPIC_FILES = (
    "support",
    "operations",
    "moderation",
    "routing",
    "tools",
    "teams",
    "reviews",
    "guard",
)
# What only training uses, so that more of it moves no other wording to another part.
_EXTRA_FILES = (
    *("more_topics", "more_routes", "more_levels"),
    *(f"wide_{name}" for name in (*TOPIC_FILES, "scales", "frames")),
)
# Function words and polite formulas: the same in every part.
_UNSPLIT = frozenset({"want", "few", "greeting", "closing", "agent", "channel", "day", "month"})

# How often training uses a topic's single words instead of a wording from its lists.
_LEXICON_SHARE = 0.25
_JOINTS = ("{a}", "{a}, {b}", "{a} or {b}", "{a} and {b}", "{a}, {b} and {c}", "{a}, {b}, {c}")
_CARRIERS = (
    *_JOINTS,
    "(it is|this is|I write|we talk) about {a}",
    "(it concerns|the matter is|the point is|there is) {a}",
    "{a} (here|again|now|today), {b}",
    "(about|regarding|concerning) {a}: {b}",
    "(I say|they say|he means|we mean): {a}, {b}",
    "{a} {b}",
)
_VERBS = (
    "(be about|concern|involve|mention|discuss|describe|indicate|report|relate to|deal with|"
    "point to|show|contain|speak of|express|address|cover|suggest)"
)
# How often training uses an invented word as a name, so that unknown words are no sign of anything.
_INVENTED_SHARE = 0.25
_INVENTED = frozenset({"name", "city", "company", "item", "server"})


# Lists of wordings under the letter or word that starts their lines.
Place = dict[str, list[str]]


@dataclass
class Topic:
    """Something a text can be about, with its wordings in texts and in questions."""

    key: str
    clashes: frozenset[str]
    says: list[str] = field(default_factory=list)
    near: list[str] = field(default_factory=list)
    does: list[str] = field(default_factory=list)
    nouns: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    words: list[str] = field(default_factory=list)


@dataclass
class Group:
    """Topics of one domain, of which a text has one, and the words for who wrote what."""

    key: str
    lists: dict[str, list[str]] = field(default_factory=dict)
    topics: list[Topic] = field(default_factory=list)


@dataclass
class Level:
    """One step of a scale."""

    texts: list[str]
    says: list[str] = field(default_factory=list)
    words: list[str] = field(default_factory=list)


@dataclass
class Scale:
    """Ordered levels; ``solo`` says that its texts hold no sentence of the domain's topics."""

    key: str
    domains: list[str] = field(default_factory=list)
    solo: bool = False
    lists: dict[str, list[str]] = field(default_factory=dict)
    levels: list[Level] = field(default_factory=list)


@dataclass
class Fact:
    """An attribute with a value, stated in sentences or under a key."""

    key: str
    slot: str = ""
    lists: dict[str, list[str]] = field(default_factory=dict)
    says: list[str] = field(default_factory=list)


def _entries(text: str) -> list[str]:
    return [entry.strip() for entry in text.split(";") if entry.strip()]


def _lines(name: str) -> list[str]:
    text = (FOLDER / f"{name}.txt").read_text(encoding="utf-8")
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def _read_group(name: str) -> Group:
    group = Group(name)
    for line in _lines(name):
        if line.startswith("== "):
            key, _, clashes = line[3:].partition("~")
            names = frozenset(entry.strip() for entry in clashes.split(",") if entry.strip())
            group.topics.append(Topic(key.strip(), names))
        elif line.startswith("+ "):
            group.topics[-1].says.append(line[2:])
        elif line.startswith("- "):
            group.topics[-1].near.append(line[2:])
        else:
            key, _, rest = line.partition(": ")
            if not group.topics:
                group.lists[key] = _entries(rest)
                continue
            topic = group.topics[-1]
            target = {"does": topic.does, "is": topic.nouns, "name": topic.names}[key]
            target.extend(_entries(rest))
    return group


def _read_scales(name: str) -> list[Scale]:
    scales: list[Scale] = []
    for line in _lines(name):
        if line.startswith("+ "):
            scales[-1].levels[-1].says.append(line[2:])
            continue
        key, _, rest = line.partition(": ")
        if key == "scale":
            scales.append(Scale(rest))
        elif key == "domains":
            scales[-1].domains = [entry.strip() for entry in rest.split(",")]
        elif key == "solo":
            scales[-1].solo = rest == "yes"
        elif key == "level":
            scales[-1].levels.append(Level(_entries(rest)))
        else:
            scales[-1].lists[key] = _entries(rest)
    return scales


def _read_facts() -> list[Fact]:
    facts: list[Fact] = []
    for line in _lines("facts"):
        if line.startswith("+ "):
            facts[-1].says.append(line[2:])
            continue
        key, _, rest = line.partition(": ")
        if key == "fact":
            facts.append(Fact(rest))
        elif key == "slot":
            facts[-1].slot = rest
        else:
            facts[-1].lists[key] = _entries(rest)
    return facts


def _read_frames() -> dict[str, list[str]]:
    frames: dict[str, list[str]] = {}
    current: list[str] = []
    for line in _lines("frames"):
        if line.startswith("+ "):
            current.append(line[2:])
        else:
            current = frames.setdefault(line.partition(": ")[2], [])
    return frames


class Bank:
    """All wordings, with random choice inside one part of the split."""

    def __init__(self, part: Part) -> None:
        self.part = part
        self.groups = [_read_group(name) for name in TOPIC_FILES]
        self.scales = _read_scales("scales_people") + _read_scales("scales_systems")
        self.facts = _read_facts()
        self.frames = _read_frames()
        self.fillers = [line[2:] for line in _lines("fillers")]
        self._extras: dict[int, list[str]] = {}
        if part == "train":
            self._read_extras()
        pairs = (line.partition(": ") for line in _lines("slots") + _lines("wordlists"))
        self._slots = {key: _entries(rest) for key, _, rest in pairs}
        self._shares: dict[tuple[int, Part], Sequence[str]] = {}

    def _places(self) -> dict[str, Place]:
        """The lists of the bank under their headings in the files that only training reads."""
        places: dict[str, Place] = {"fillers": {"+": self.fillers}}
        for group in self.groups:
            for topic in group.topics:
                places[f"{group.key}/{topic.key}"] = {
                    "+": topic.says,
                    "-": topic.near,
                    "does": topic.does,
                    "is": topic.nouns,
                    "name": topic.names,
                    "words": topic.words,
                }
        for scale in self.scales:
            for at, level in enumerate(scale.levels):
                place = {"+": level.says, "is": level.texts, "words": level.words}
                places[f"{scale.key}/{at}"] = place
        for fact in self.facts:
            places[f"{fact.key}/says"] = {"+": fact.says}
        named = {"frames": self.frames}
        named.update({group.key: group.lists for group in self.groups})
        named.update({scale.key: scale.lists for scale in self.scales})
        named.update({fact.key: fact.lists for fact in self.facts})
        for key, lists in named.items():
            places.update({f"{key}/{name}": {"+": values} for name, values in lists.items()})
        return places

    def _read_extras(self) -> None:
        """What only training uses: single words, and further wordings."""
        places = self._places()
        for line in _lines("lexicon") + _lines("lexicon_more"):
            key, _, rest = line.partition(": ")
            places[key]["words"] += _entries(rest)
        place: Place = {}
        for line in (line for name in _EXTRA_FILES for line in _lines(name)):
            if line in places:
                place = places[line]
                continue
            template = line.startswith(("+ ", "- "))
            key, _, rest = line.partition(" " if template else ": ")
            values = place[key]
            found = [rest] if template else _entries(rest)
            if key == "words":
                values += [word for word in found if word not in values]
            else:
                self._extras.setdefault(id(values), []).extend(found)

    def say(self, source: Topic | Level, rng: random.Random) -> str:
        """A sentence that expresses the topic or level."""
        if self.part == "train" and rng.random() < _LEXICON_SHARE:
            return self._bag(source.words, rng, _CARRIERS)
        return self.pick(source.says, rng)

    def noun(self, topic: Topic, rng: random.Random, **context: str) -> str:
        """A noun phrase for the topic."""
        if self.part == "train" and rng.random() < _LEXICON_SHARE:
            return self._bag(topic.words, rng, _JOINTS)
        return self.pick(topic.nouns, rng, **context)

    def deed(self, topic: Topic, rng: random.Random, **context: str) -> str:
        """A verb phrase for what a text of the topic does."""
        if self.part == "train" and rng.random() < _LEXICON_SHARE:
            return f"{self.fill(_VERBS, rng)} {self.noun(topic, rng, **context)}"
        return self.pick(topic.does, rng, **context)

    def level_text(self, level: Level, rng: random.Random) -> str:
        """A description of a level."""
        if self.part == "train" and rng.random() < _LEXICON_SHARE:
            return self._bag(level.words, rng, _JOINTS)
        return self.pick(level.texts, rng)

    def _bag(self, words: list[str], rng: random.Random, frames: tuple[str, ...]) -> str:
        first, second, third = rng.sample(words, 3)
        return self.fill(rng.choice(frames), rng, a=first, b=second, c=third)

    @cached_property
    def by_domain(self) -> Mapping[str, Group]:
        """The groups under their names."""
        return {group.key: group for group in self.groups}

    def values(self, slot: str) -> Sequence[str]:
        """The values of a slot that this part may use."""
        values = self._slots[slot]
        return values if slot in _UNSPLIT else self.part_of(values)

    def others(self, slot: str, value: str) -> list[str]:
        """The slot's other values that may stand beside ``value``; not only unseen ones."""
        hidden: set[str] = set()
        if slot not in _UNSPLIT:
            if self.part == "train":
                return [other for other in self.values(slot) if other != value]
            if self.part == "validation":
                hidden = set(share(self._slots[slot], "heldout"))
        return [other for other in self._slots[slot] if other != value and other not in hidden]

    def part_of(self, values: list[str]) -> Sequence[str]:
        """This part's share of a list."""
        return self._share(values, self.part)

    def _share(self, values: list[str], part: Part) -> Sequence[str]:
        # Remembered by the list's identity: the lists live as long as the bank.
        known = self._shares.get((id(values), part))
        if known is None:
            known = [*share(values, part), *self._extras.get(id(values), [])]
            self._shares[id(values), part] = known
        return known

    def around(self, values: list[str], rng: random.Random, **context: str) -> str:
        """Like pick, for what carries no answer (fillers, ways to put a question, who writes what):
        validation and held-out items mix words that training knows with words that it does not."""
        known = self.part != "train" and rng.random() < 0.5
        part: Part = "train" if known else self.part
        return self.fill(rng.choice(self._share(values, part)), rng, **context)

    def pick(self, values: list[str], rng: random.Random, **context: str) -> str:
        """A random wording of this part, expanded; ``context`` fills slots before the lists do."""
        return self.fill(rng.choice(self.part_of(values)), rng, **context)

    def fill(self, template: str, rng: random.Random, **context: str) -> str:
        """Expands a template with this part's slot values."""

        def lookup(slot: str, rng: random.Random) -> str:
            if slot in context:
                return context[slot]
            made = _made_up(slot, rng)
            if made is not None:
                return made
            if slot in _INVENTED and self.part == "train" and rng.random() < _INVENTED_SHARE:
                return invent(rng)
            values = self._slots[slot]
            if slot in _UNSPLIT:
                return self.fill(rng.choice(values), rng)
            return self.around(values, rng)

        return expand(template, rng, lookup)


def invent(rng: random.Random) -> str:
    """A word that does not exist."""
    syllables = rng.randint(2, 3)
    return "".join(
        rng.choice("bcdfghjklmnprstvwz") + rng.choice("aeiou") + rng.choice(("", "", "n", "r", "s"))
        for _ in range(syllables)
    ).capitalize()


def _letters(rng: random.Random, count: int) -> str:
    return "".join(rng.choice("abcdefghjkmnpqrstuvwxyz23456789") for _ in range(count))


def _made_up(slot: str, rng: random.Random) -> str | None:
    """Numbers and addresses, which are made rather than listed."""
    match slot:
        case "num":
            return str(rng.randint(2, rng.choice((20, 90, 900, 90000))))
        case "pct":
            return str(rng.randint(5, 99))
        case "money":
            amount = rng.randint(5, rng.choice((90, 900, 5000)))
            return rng.choice((f"${amount}", f"{amount} euros", f"{amount} dollars", f"€{amount}"))
        case "time":
            return f"{rng.randint(0, 23)}:{rng.randint(0, 59):02}"
        case "phone":
            return f"+{rng.randint(1, 99)} {rng.randint(100, 999)} {rng.randint(10000, 999999)}"
        case "card":
            return " ".join(str(rng.randint(1000, 9999)) for _ in range(rng.randint(2, 4)))
        case "secret":
            return rng.choice(("sk-", "pw_", "", "key-")) + _letters(rng, rng.randint(6, 14))
        case "email":
            return f"{_letters(rng, 5)}@{rng.choice(('example', 'mail', 'corp'))}.com"
        case "url":
            return f"http://{_letters(rng, 6)}.{rng.choice(('com', 'biz', 'shop', 'net'))}"
        case "path":
            folder = rng.choice(("home", "var", "data", "srv", "opt"))
            ending = rng.choice(("txt", "log", "csv", "cfg", "md"))
            return f"/{folder}/{_letters(rng, 4)}/{_letters(rng, 5)}.{ending}"
        case _:
            return None

"""Questions with named options."""

from __future__ import annotations

import random
from typing import Any

from .bank import Bank, Group, Topic
from .grammar import Deed
from .item import Cast, Item, Question, dress
from .states import compose

_GREEK = (
    *("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta"),
    *("theta", "iota", "kappa", "lambda", "mu", "nu", "xi"),
)
_OPAQUE = (
    tuple("ABCDEFGHIJKLMN"),
    tuple(f"option_{number}" for number in range(1, 15)),
    tuple(f"c{number}" for number in range(1, 15)),
    tuple(str(number) for number in range(1, 15)),
    _GREEK,
)


def topic_choice(bank: Bank, rng: random.Random) -> Item:
    """Which of these topics does the text have? Sometimes none, and an option says so."""
    group = rng.choice(bank.groups)
    cast = Cast.of(bank, rng, group)
    topic = rng.choice(group.topics)
    wrong = [
        other
        for other in group.topics
        if other is not topic and other.key not in topic.clashes and topic.key not in other.clashes
    ]
    count = min(option_count(rng), len(wrong) + 1)
    options = [topic, *rng.sample(wrong, count - 1)]
    rng.shuffle(options)
    right = options.index(topic)
    rest = rng.random() < 0.25
    if rest and rng.random() < 0.3:
        # The text's own topic is not offered: the catch-all is right.
        del options[right]
        right = -1
    sentences = [bank.say(topic, rng)]
    if rng.random() < 0.35:
        sentences.append(bank.say(topic, rng))
    state = compose(bank, rng, group, sentences, cast.field)
    pairs = _describe(bank, rng, cast, options)
    if rest:
        pair = _rest(bank, rng, described=any(text is not None for _, text in pairs))
        if right < 0 or rng.random() < 0.7:
            pairs.append(pair)
            right = len(pairs) - 1 if right < 0 else right
        else:
            pairs.insert(0, pair)
            right += 1
    question = _question(bank, rng, cast, group, pairs)
    return Item(group.key, state, question, right)


def option_count(rng: random.Random) -> int:
    """How many options a question has."""
    chance = rng.random()
    if chance < 0.22:
        return 2
    if chance < 0.66:
        return rng.randint(3, 5)
    if chance < 0.93:
        return rng.randint(6, 10)
    return rng.randint(11, 13)


def _describe(
    bank: Bank, rng: random.Random, cast: Cast, topics: list[Topic]
) -> list[tuple[str, Any]]:
    style = rng.choice(("plain", "noun", "noun", "deed", "two", "object", "mixed"))
    names = _names(bank, rng, topics)
    if style != "plain" and rng.random() < 0.2:
        letters = list(rng.choice(_OPAQUE)[: max(len(topics), 1)])
        if rng.random() < 0.4:
            rng.shuffle(letters)
        names = letters
        style = "noun" if style == "mixed" else style
    return [
        (name, None if style == "plain" else _text(bank, rng, cast, topic, style))
        for name, topic in zip(names, topics, strict=True)
    ]


def _text(bank: Bank, rng: random.Random, cast: Cast, topic: Topic, style: str) -> Any:
    if style == "mixed":
        style = rng.choice(("none", "noun", "deed", "two"))
    if style == "none":
        return rng.choice((None, ""))
    words = cast.words()
    noun = bank.noun(topic, rng, **words)
    if style == "noun":
        return noun
    deed = Deed(bank.deed(topic, rng, **words))
    if style == "two":
        return f"{noun}, {rng.choice((bank.noun(topic, rng, **words), deed.gerund))}"
    if style == "object":
        return {rng.choice(("description", "means", "when")): noun}
    return rng.choice((f"the {cast.actor} {deed.third}", deed.third, deed.gerund))


def _names(bank: Bank, rng: random.Random, topics: list[Topic]) -> list[str]:
    style = rng.choice(("snake", "snake", "plain", "title", "kebab", "upper"))
    names: list[str] = []
    for topic in topics:
        name = style_name(bank.pick(topic.names, rng), style)
        while name in names:
            name += "_2" if style == "snake" else " 2"
        names.append(name)
    return names


def style_name(name: str, style: str) -> str:
    """Writes an option's name the way code or people do."""
    match style:
        case "snake":
            return name.replace(" ", "_")
        case "title":
            return name.title()
        case "kebab":
            return name.replace(" ", "-")
        case "upper":
            return name.upper().replace(" ", "_")
        case _:
            return name


def _rest(bank: Bank, rng: random.Random, *, described: bool) -> tuple[str, Any]:
    name = bank.around(bank.frames["other_name"], rng)
    text = bank.around(bank.frames["other_text"], rng) if described and rng.random() < 0.8 else None
    return name, text


def _question(
    bank: Bank, rng: random.Random, cast: Cast, group: Group, pairs: list[tuple[str, Any]]
) -> Question:
    frames = group.lists["asks"] if rng.random() < 0.7 else bank.frames["choose"]
    text = bank.around(frames, rng, **cast.words())
    criteria: Any = dict(pairs)
    if all(value is None for value in criteria.values()) and rng.random() < 0.5:
        criteria = list(criteria)
    instructions = None if rng.random() < 0.01 else dress(bank, rng, cast, text)
    return {"type": "choice", "instructions": instructions, "criteria": criteria}

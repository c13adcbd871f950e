"""Questions whose answer is a value in the text: they teach reading, as the values vary freely."""

from __future__ import annotations

import random
from typing import Any

from .bank import Bank, Fact, Group, invent
from .choices import option_count, style_name
from .item import Cast, Item, Question, dress
from .nouls import ask
from .states import State, compose


def _stage(
    bank: Bank, rng: random.Random, group: Group, cast: Cast, facts: list[Fact], values: list[str]
) -> State:
    """A state that states the values, as sentences or under keys."""
    sentences: list[str] = []
    extra: dict[str, Any] = {}
    for fact, value in zip(facts, values, strict=True):
        if rng.random() < 0.25:
            extra[bank.pick(fact.lists["keys"], rng)] = value
            continue
        other = rng.choice(bank.others(fact.slot, value))
        sentences.append(bank.pick(fact.says, rng, x=value, y=other))
    if not sentences:
        sentences.append(bank.around(bank.fillers, rng))
    return compose(bank, rng, group, sentences, cast.field, extra or None)


# How often training states a word that does not exist: the value must be read, not known.
_INVENTED_SHARE = 0.2


def _value(bank: Bank, rng: random.Random, fact: Fact) -> str:
    if bank.part == "train" and rng.random() < _INVENTED_SHARE:
        return invent(rng)
    return rng.choice(bank.values(fact.slot))


def _cast(bank: Bank, rng: random.Random) -> tuple[Group, Cast, list[Fact]]:
    group = bank.by_domain["support"]
    facts = rng.sample(bank.facts, rng.choice((1, 1, 2, 2, 3)))
    return group, Cast.of(bank, rng, group), facts


def lookup_choice(bank: Bank, rng: random.Random) -> Item:
    """Which value does an attribute have?"""
    group, cast, facts = _cast(bank, rng)
    values = [_value(bank, rng, fact) for fact in facts]
    state = _stage(bank, rng, group, cast, facts, values)
    fact, value = facts[0], values[0]
    options = bank.others(fact.slot, value)
    if value not in bank.values(fact.slot) and rng.random() < 0.5:
        # An invented value must not be told by being the only one.
        options = [invent(rng) for _ in options]
    options = [other for other in dict.fromkeys(options) if other != value]
    options = [value, *rng.sample(options, min(option_count(rng) - 1, len(options)))]
    rng.shuffle(options)
    right = options.index(value)
    style = rng.choice(("plain", "plain", "title", "upper", "snake"))
    names = [style_name(option, style) for option in options]
    criteria: Any = names if rng.random() < 0.6 else dict.fromkeys(names)
    text = bank.pick(fact.lists["asks"], rng, **cast.words())
    question: Question = {
        "type": "choice",
        "instructions": dress(bank, rng, cast, text),
        "criteria": criteria,
    }
    return Item("lookup", state, question, right)


def lookup_noul(bank: Bank, rng: random.Random) -> Item:
    """Does an attribute have this value?"""
    group, cast, facts = _cast(bank, rng)
    values = [_value(bank, rng, fact) for fact in facts]
    state = _stage(bank, rng, group, cast, facts, values)
    fact, asked = facts[0], values[0]
    holds = rng.random() < 0.5
    if not holds:
        asked = rng.choice(bank.others(fact.slot, asked))
    deed = bank.pick(fact.lists["does"], rng, x=asked)
    question, asserts = ask(bank, rng, cast, deed, None)
    return Item("lookup", state, question, int(holds == asserts))

"""Yes-or-no questions about topics and scales."""

from __future__ import annotations

import random
from typing import Any

from .bank import Bank, Group, Scale, Topic
from .grammar import Deed
from .item import Cast, Item, Question, dress
from .states import compose

# Domains whose topics never hold in each other's texts, for questions about something far away.
_FAR = {
    "support": ("routing", "tools"),
    "operations": ("reviews", "moderation"),
    "moderation": ("operations", "tools"),
    "routing": ("operations", "moderation"),
    "teams": ("moderation", "reviews"),
    "tools": ("reviews", "moderation"),
    "reviews": ("operations", "tools"),
    "guard": ("reviews", "operations"),
}
_LABELS = (("no", "yes"), ("B", "A"), ("A", "B"), ("wrong", "right"), ("0", "1"), ("N", "Y"))


def topic_noul(bank: Bank, rng: random.Random) -> Item:
    """Does the text express a topic? Half of the texts do; the others speak of something else,
    of the topic without expressing it, or of nothing in particular."""
    group = rng.choice(bank.groups)
    cast = Cast.of(bank, rng, group)
    topic = rng.choice(group.topics)
    holds = rng.random() < 0.5
    sentences = _present(bank, rng, group, topic) if holds else _absent(bank, rng, group, topic)
    if group.key == "support" and topic.key != "praise" and rng.random() < 0.2:
        sentences.append(_mood(bank, rng))
    asked = topic
    if not holds and rng.random() < 0.12:
        far = bank.by_domain[rng.choice(_FAR[group.key])]
        asked = rng.choice([topic for topic in far.topics if topic.key not in _EVERYDAY])
    state = compose(bank, rng, group, sentences, cast.field)
    if not holds and rng.random() < 0.01:
        state = rng.choice(("", "...", {}, []))
    words = cast.words()
    deed, noun = bank.deed(asked, rng, **words), bank.noun(asked, rng, **words)
    question, asserts = ask(bank, rng, cast, deed, noun)
    return Item(group.key, state, question, int(holds == asserts))


# Topics that hold of any text without a fault, so that their absence cannot be staged from afar.
_EVERYDAY = frozenset({"ontopic", "benign", "chitchat", "read"})


def _present(bank: Bank, rng: random.Random, group: Group, topic: Topic) -> list[str]:
    sentences = [bank.say(topic, rng)]
    if rng.random() < 0.3:
        sentences.append(bank.say(topic, rng))
    if rng.random() < 0.3:
        other = rng.choice(_strangers(group, topic))
        sentences.append(bank.say(other, rng))
    return sentences


def _absent(bank: Bank, rng: random.Random, group: Group, topic: Topic) -> list[str]:
    chance = rng.random()
    if topic.near and chance < 0.28:
        return [bank.pick(topic.near, rng)]
    if chance < 0.36:
        return (
            [bank.around(bank.fillers, rng)]
            if topic.key not in _EVERYDAY
            else _other(bank, rng, group, topic)
        )
    sentences = _other(bank, rng, group, topic)
    if topic.near and chance > 0.88:
        sentences.append(bank.pick(topic.near, rng))
    return sentences


def _other(bank: Bank, rng: random.Random, group: Group, topic: Topic) -> list[str]:
    strangers = _strangers(group, topic)
    return [bank.say(other, rng) for other in rng.sample(strangers, rng.choice((1, 1, 1, 2)))]


def _strangers(group: Group, topic: Topic) -> list[Topic]:
    """The topics of the group that say nothing about whether ``topic`` holds."""
    return [
        other
        for other in group.topics
        if other is not topic and other.key not in topic.clashes and topic.key not in other.clashes
    ]


def _mood(bank: Bank, rng: random.Random) -> str:
    scale = rng.choice([scale for scale in bank.scales if scale.key in ("frustration", "urgency")])
    level = rng.choice(scale.levels[1:])
    return bank.say(level, rng)


def scale_noul(bank: Bank, rng: random.Random) -> Item:
    """Is the text at the high (or the low) end of a scale? Middling texts are not asked about."""
    scale = rng.choice(bank.scales)
    group = bank.by_domain[rng.choice(scale.domains)]
    cast = Cast.of(bank, rng, group)
    side = rng.choice(("high", "low"))
    last = len(scale.levels) - 1
    high = rng.choice((last, last - 1))
    low = 0 if len(scale.levels) < 5 else rng.choice((0, 1))
    at_high = rng.random() < 0.5
    level = scale.levels[high if at_high else low]
    sentences = [*surroundings(bank, rng, scale, group), bank.say(level, rng)]
    state = compose(bank, rng, group, sentences, cast.field)
    deed = bank.pick(scale.lists[side], rng, **cast.words())
    question, asserts = ask(bank, rng, cast, deed, None)
    holds = at_high == (side == "high")
    return Item(group.key, state, question, int(holds == asserts))


def surroundings(bank: Bank, rng: random.Random, scale: Scale, group: Group) -> list[str]:
    """Sentences of the domain's topics that can stand beside a sentence of the scale."""
    if scale.solo or rng.random() < 0.4:
        return []
    topics = [topic for topic in group.topics if topic.key not in ("praise", "maintenance")]
    return [bank.say(rng.choice(topics), rng)]


def ask(
    bank: Bank, rng: random.Random, cast: Cast, does: str, noun: str | None
) -> tuple[Question, bool]:
    """A question, and whether yes means that the thing holds (not so where it is negated)."""
    words = cast.words()
    subject = rng.choice((cast.actor, cast.medium)) if rng.random() < 0.3 else cast.actor
    deed = Deed(does)
    said = {
        "doesq": deed.question(subject),
        "states": f"the {subject} {deed.third}",
        "statesnot": deed.denial(subject),
        "np": noun or "",
    }
    if rng.random() < 0.1:
        return _by_criteria(bank, rng, cast, said)
    asserts = rng.random() > 0.17
    if noun and rng.random() < 0.3:
        frame = "np_yes" if asserts else "np_no"
    else:
        frame = ("plain" if rng.random() < 0.5 else "yes") if asserts else "no"
    text = bank.around(bank.frames[frame], rng, **words, **said)
    question: Question = {"type": "noul", "instructions": dress(bank, rng, cast, text)}
    if asserts:
        _add_criteria(rng, question, said)
    return question, asserts


def _sides(rng: random.Random, said: dict[str, str]) -> tuple[str, str]:
    """Descriptions of "it holds" and "it doesn't"."""
    if said["np"] and rng.random() < 0.4:
        return said["np"], rng.choice((f"not {said['np']}", f"no {said['np']}", "something else"))
    return said["states"], rng.choice((said["statesnot"], said["statesnot"], "anything else"))


def _add_criteria(rng: random.Random, question: Question, said: dict[str, str]) -> None:
    chance = rng.random()
    holds, fails = _sides(rng, said)
    if chance < 0.15:
        criteria: Any = {"true": holds, "false": fails}
        if rng.random() < 0.3:
            criteria = {"false": fails, "true": holds}
        question["criteria"] = criteria
    elif chance < 0.2:
        question["criteria"] = {"true": holds}
    elif chance < 0.22:
        question["criteria"] = {"true": {"means": holds}, "false": {"means": fails}}
    elif chance < 0.25:
        question["criteria"] = None
    if rng.random() < 0.08:
        false, true = rng.choice(_LABELS)
        question["labels"] = {"false": false, "true": true}


def _by_criteria(
    bank: Bank, rng: random.Random, cast: Cast, said: dict[str, str]
) -> tuple[Question, bool]:
    """The instruction says nothing: the two descriptions must be read, whichever way round."""
    holds, fails = said["states"], said["statesnot"]
    asserts = rng.random() < 0.6
    if not asserts:
        holds, fails = fails, holds
    text = bank.around(bank.frames["neutral"], rng, **cast.words())
    question: Question = {
        "type": "noul",
        "instructions": None if rng.random() < 0.1 else dress(bank, rng, cast, text),
        "criteria": {"true": holds, "false": fails},
    }
    return question, asserts

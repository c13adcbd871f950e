"""Questions about a level on a scale."""

from __future__ import annotations

import random
from typing import Any

from .bank import Bank, Level
from .item import Cast, Item, dress
from .nouls import surroundings
from .states import compose


def scale_score(bank: Bank, rng: random.Random) -> Item:
    """At which level is the text? Some levels may be left out, and some scales run backwards."""
    scale = rng.choice(bank.scales)
    group = bank.by_domain[rng.choice(scale.domains)]
    cast = Cast.of(bank, rng, group)
    size = rng.choice((2, 3, 3, 4, 4, 5))
    chosen = sorted(rng.sample(range(len(scale.levels)), min(size, len(scale.levels))))
    if rng.random() < 0.2:
        chosen.reverse()
    label = rng.randrange(len(chosen))
    level = scale.levels[chosen[label]]
    sentences = [*surroundings(bank, rng, scale, group), bank.say(level, rng)]
    if rng.random() < 0.3:
        sentences.append(bank.say(level, rng))
    state = compose(bank, rng, group, sentences, cast.field)
    text = bank.pick(scale.lists["asks"], rng, **cast.words())
    if rng.random() < 0.04:
        text = bank.around(bank.frames["choose"], rng, **cast.words())
    criteria = _criteria(bank, rng, [scale.levels[index] for index in chosen])
    question = {
        "type": "score",
        "instructions": dress(bank, rng, cast, text),
        "criteria": criteria,
    }
    return Item(group.key, state, question, label)


def _criteria(bank: Bank, rng: random.Random, levels: list[Level]) -> list[Any]:
    style = rng.choice(("plain", "plain", "plain", "two", "object", "title"))
    texts: list[Any] = []
    for level in levels:
        text = bank.level_text(level, rng)
        if style == "two":
            text += rng.choice((", ", ": ", " - ")) + bank.level_text(level, rng)
        elif style == "title":
            text = text[:1].upper() + text[1:]
        texts.append({"means": text} if style == "object" else text)
    return texts

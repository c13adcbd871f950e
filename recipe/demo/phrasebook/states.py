"""Wraps sentences into a state: text, an object or a conversation, short or long."""

from __future__ import annotations

import random
from typing import Any

from .bank import Bank, Group

State = str | dict[str, Any] | list[Any]
_WORD_LIMIT = 230


def compose(
    bank: Bank,
    rng: random.Random,
    group: Group,
    sentences: list[str],
    field: str,
    extra: dict[str, Any] | None = None,
) -> State:
    """A state that holds the sentences, in any order, among sentences that answer nothing.

    ``field`` is the key under which an object holds the text; ``extra`` are more keys for it, and
    forces an object.
    """
    lines = [_finish(rng, line) for line in sentences]
    for _ in range(_filler_count(rng)):
        lines.insert(rng.randint(0, len(lines)), _finish(rng, bank.around(bank.fillers, rng)))
        if sum(line.count(" ") + 1 for line in lines) > _WORD_LIMIT:
            break
    form = 0.6 if extra else rng.random()
    if form < 0.55:
        return _letter(bank, rng, lines)
    if form < 0.8:
        return _object(bank, rng, lines, field, extra)
    return _conversation(bank, rng, group, lines)


def _filler_count(rng: random.Random) -> int:
    chance = rng.random()
    if chance < 0.35:
        return 0
    if chance < 0.72:
        return rng.randint(1, 2)
    if chance < 0.92:
        return rng.randint(3, 7)
    return rng.randint(8, 32)


def _finish(rng: random.Random, line: str) -> str:
    """Ends a sentence the way people do, and sometimes changes its case or misspells a word."""
    chance = rng.random()
    if chance < 0.06:
        line = _misspell(rng, line)
    elif chance < 0.1:
        line = line[:1].lower() + line[1:]
    elif chance < 0.12:
        line = line.upper()
    if line[-1:] in "?!.":
        return line
    return line + rng.choice((".", ".", ".", ".", ".", "!", "", "...", ";"))


def _misspell(rng: random.Random, line: str) -> str:
    words = line.split(" ")
    at = rng.randrange(len(words))
    word = words[at]
    if len(word) > 4 and word.isalpha():
        cut = rng.randrange(1, len(word) - 1)
        swapped = word[:cut] + word[cut + 1] + word[cut] + word[cut + 2 :]
        words[at] = rng.choice((swapped, word[:cut] + word[cut + 1 :]))
    return " ".join(words)


def _letter(bank: Bank, rng: random.Random, lines: list[str]) -> str:
    text = rng.choice((" ", " ", " ", "\n")).join(lines)
    if rng.random() < 0.3:
        greeting = bank.fill(rng.choice(bank.values("greeting")), rng)
        text = greeting + rng.choice((", ", "! ", ",\n", ",\n\n", " ")) + text
    if rng.random() < 0.25:
        text += rng.choice((" ", "\n", "\n\n")) + bank.fill(rng.choice(bank.values("closing")), rng)
    if rng.random() < 0.1:
        text = text.lower()
    return text


def _object(
    bank: Bank, rng: random.Random, lines: list[str], field: str, extra: dict[str, Any] | None
) -> dict[str, Any]:
    others: dict[str, Any] = dict(extra or {})
    if rng.random() < 0.5:
        others[rng.choice(("id", "ticket_id", "number", "ref"))] = rng.randint(1, 99999)
    if rng.random() < 0.3:
        others[rng.choice(("channel", "source", "via"))] = rng.choice(bank.values("channel"))
    if rng.random() < 0.3:
        others[rng.choice(("from", "name", "author"))] = rng.choice(bank.values("name"))
    if rng.random() < 0.15:
        others[rng.choice(("tags", "flags"))] = []
    first = lines.pop(0) if len(lines) > 1 and rng.random() < 0.25 else None
    pairs: list[tuple[str, Any]] = list(others.items())
    if first is not None:
        pairs.append((rng.choice(("subject", "title", "headline")), first))
    text: Any = lines if len(lines) > 1 and rng.random() < 0.1 else " ".join(lines)
    pairs.append((field, text))
    rng.shuffle(pairs)
    state = dict(pairs)
    return {rng.choice(("ticket", "event", "item")): state} if rng.random() < 0.08 else state


def _conversation(bank: Bank, rng: random.Random, group: Group, lines: list[str]) -> list[Any]:
    if rng.random() < 0.2:
        return list(lines)
    writer = rng.choice(("user", "customer", "client", rng.choice(group.lists["actors"])))
    other = rng.choice(("agent", "assistant", "support", "system"))
    role, content = rng.choice((("role", "content"), ("from", "text"), ("speaker", "message")))
    turns: list[Any] = []
    while lines:
        count = rng.randint(1, 3)
        turns.append({role: writer, content: " ".join(lines[:count])})
        lines = lines[count:]
        if rng.random() < 0.6:
            reply = bank.fill(rng.choice(bank.values("agent")), rng)
            turns.insert(rng.choice((len(turns) - 1, len(turns))), {role: other, content: reply})
    return turns

"""One question about one state, with its answer."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, Literal

from .bank import Bank, Group
from .states import State

Kind = Literal["noul", "choice", "score"]
Question = dict[str, Any]


@dataclass(frozen=True)
class Item:
    """``label`` is the index of the right option in Laya's order (noul: 0 false, 1 true)."""

    domain: str
    state: State
    question: Question
    label: int

    @property
    def kind(self) -> Kind:
        """The question's type."""
        kind: Kind = self.question["type"]
        return kind


@dataclass(frozen=True)
class Cast:
    """The words that one item uses for who wrote what, and where it stands."""

    actor: str
    medium: str
    field: str

    @classmethod
    def of(cls, bank: Bank, rng: random.Random, group: Group) -> Cast:
        """A random cast of a group."""
        return cls(
            bank.around(group.lists["actors"], rng),
            bank.around(group.lists["media"], rng),
            bank.around(group.lists["fields"], rng),
        )

    def words(self) -> dict[str, str]:
        """For templates."""
        return {"actor": self.actor, "medium": self.medium, "field": self.field}


def dress(bank: Bank, rng: random.Random, cast: Cast, text: str) -> Any:
    """Varies the form of an instruction: case, full stops, a remark, sometimes an object."""
    chance = rng.random()
    if chance < 0.08:
        remark = bank.around(bank.frames["suffix"], rng, **cast.words())
        ending = "" if text[-1:] in "?.!" else "."
        text = f"{text}{ending} {remark}" if rng.random() < 0.6 else f"{remark}: {text}"
    elif chance < 0.14:
        text = text.lower()
    elif chance < 0.16:
        text = text.upper()
    elif chance < 0.2:
        text = text.rstrip("?")
    elif chance < 0.22:
        return {rng.choice(("question", "task", "ask")): text}
    elif chance < 0.23:
        return [text]
    if isinstance(text, str) and text and rng.random() < 0.9:
        text = text[:1].upper() + text[1:]
        if text[-1:].isalnum() and rng.random() < 0.5:
            text += "."
    return text

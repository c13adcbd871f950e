"""The mixture of items that training, validation and the held-out set draw from."""

from __future__ import annotations

import random

from .bank import Bank
from .choices import topic_choice
from .item import Item
from .lookups import lookup_choice, lookup_noul
from .nouls import scale_noul, topic_noul
from .scores import scale_score

_MAKERS = (topic_noul, scale_noul, lookup_noul, topic_choice, lookup_choice, scale_score)
_SHARES = (30, 8, 5, 30, 7, 20)
# Training has more options that the text names word for word: they teach it to compare.
_TRAINING_SHARES = (31, 8, 6, 29, 10, 16)

# The first decision that the README shows is asked of the model, never taught to it.
RESERVED = frozenset({"please refund the duplicate charge"})


def make_item(bank: Bank, rng: random.Random) -> Item:
    """A random item with the wordings of the bank's part."""
    shares = _TRAINING_SHARES if bank.part == "train" else _SHARES
    while True:
        item = rng.choices(_MAKERS, shares)[0](bank, rng)
        if not isinstance(item.state, str) or _plain(item.state) not in RESERVED:
            return item


def _plain(text: str) -> str:
    return text.lower().strip(" .!;\n")

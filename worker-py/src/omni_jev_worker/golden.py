"""The rows that the parity gate compares: a name, a state and one question of each.

Twenty are compared whatever the precision is: of mixed lengths up to the window, types, option
counts and scripts. They find what is wrong in kind: a mask, a padding, a rotation, a rounding that
is everywhere. Whole numbers of eight bits err otherwise, little in most rows and much in a few:
these get `everyday` rows besides.
"""

import hashlib
import json
from typing import Any, Final

from omni_jev_worker import everyday
from omni_jev_worker.tuning import INT8

Row = tuple[str, Any, dict[str, Any]]

LOSSY: Final = (INT8,)
"""The precisions that twenty rows say too little of."""

_EVERYDAY: Final = 120

_TEXTS: Final = (
    "The parcel came late and the box was open. ",
    "Bonjour, je voudrais annuler ma commande et être remboursé. ",
    "お問い合わせありがとうございます。返金をお願いします。",
    "Ошибка 502 при оплате, деньги списаны дважды! ",
    "مرحبا، لم يصل الطلب بعد. ",
    "rm -rf /tmp/build && git push --force origin main; ",
)

# Of a state, in characters; the last is cut to the window.
_LENGTHS: Final = (0, 3, 40, 90, 150, 200, 260, 330, 410, 520, 640, 800, 1000, 1300, 1700, 100_000)

_OPTIONS: Final = (2, 3, 4, 6, 9, 17)

_NAMES: Final = (
    *("billing", "delivery", "technical", "sales", "legal", "security", "press", "abuse", "spam"),
    *("refund", "praise", "account", "privacy", "hiring", "partner", "translation", "other"),
)


def rows_for(weights: str) -> list[Row]:
    """Give the rows that a precision is compared by."""
    more = _EVERYDAY if weights in LOSSY else 0
    return [*_various(), *(everyday.row(number) for number in range(more))]


def digest(weights: str) -> str:
    """Give a hash of them, so that what was found with other rows is told from what is asked."""
    told = json.dumps(rows_for(weights), sort_keys=True).encode()
    return hashlib.sha256(told).hexdigest()


def _various() -> list[Row]:
    rows: list[Row] = []
    for at, length in enumerate(_LENGTHS):
        text = _TEXTS[at % len(_TEXTS)]
        state = (text * (length // len(text) + 1))[:length]
        rows.append((f"{length} characters", state, _question(at)))
    turns = [{"role": "user", "content": text} for text in _TEXTS]
    rows.append(("a conversation", turns, _question(1)))
    rows.append(("a long conversation", turns * 20, _question(2)))
    rows.append(("fields", {"order": 4711, "late": True, "items": ["lamp", None]}, _question(3)))
    rows.append(("many options", _TEXTS[0] * 4, _choice(len(_NAMES))))
    return rows


def _question(number: int) -> dict[str, Any]:
    count = _OPTIONS[number % len(_OPTIONS)]
    if number % 3 == 0:
        return {"q": {"type": "noul", "instructions": "Does the customer ask for a refund?"}}
    if number % 3 == 1:
        return _choice(count)
    levels = [f"level {level} of trouble" for level in range(max(3, count))]
    return {"q": {"type": "score", "instructions": "How bad is it?", "criteria": levels}}


def _choice(count: int) -> dict[str, Any]:
    criteria = {name: f"it is about {name}" for name in _NAMES[:count]}
    return {"q": {"type": "choice", "instructions": "Which team?", "criteria": criteria}}

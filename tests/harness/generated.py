"""Requests of every kind, made up by chance from a seed."""

import random
from collections.abc import Iterator
from typing import Any

TEXTS = (
    "Please refund the duplicate charge.",
    "We cannot log in since this morning, and nobody answers!",
    "환불해 주세요. 배송이 3일째 안 와요",
    "Das Café hat mich zweimal belastet",
    "请退款 我被收取了两次费用",
    "Пожалуйста, верните деньги",
    "أريد استرداد أموالي",
    "कृपया पैसे वापस करें",
    "😡🔥 refund NOW 👨‍👩‍👧",
    "line one\nline two\ttabbed \\ \"quoted\" 'single'",
    '[MASK] [SEP] [CLS] {"json": [1, 2]} <b>html</b> \u0000\u200b\ufeff',
    "",
    " ",
    "The parcel came late and the box was open. " * 3,
)
# Past every window, of which the longest holds 1,024 tokens.
LONG = "The parcel came late and the box was open. " * 130
WORDS = (
    "billing",
    "sales",
    "IT",
    "배송 문의",
    "🙂 기타",
    "a.b-c",
    "Ärger",
    "yes",
    "0",
    "x y z",
    "ع",
)
IDS = ("q", "ticket-1", "q.2", "with space", "질문", "🎯", "a/b?c=d&e", "__proto__", "0", '"', "é")


def requests(count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Give requests that Laya answers in one row a question."""
    chance = random.Random(seed)
    for _ in range(count):
        ids = chance.sample(IDS, chance.randint(1, 3))
        yield {"state": _state(chance), "questions": {name: _question(chance) for name in ids}}


def _state(chance: random.Random) -> Any:
    kind = chance.randrange(20)
    if kind == 0:
        return chance.choice([LONG, [LONG, "the newest turn"], {"text": LONG}])
    if kind < 6:
        return {chance.choice(WORDS): _text(chance), "n": [1, 2.5, None, True], "t": _text(chance)}
    if kind < 12:
        roles = ("user", "assistant")
        turns = range(chance.randint(0, 12))
        return [{"role": roles[n % 2], "content": chance.choice(TEXTS)} for n in turns]
    return chance.choice(TEXTS) + chance.choice(TEXTS)


def _text(chance: random.Random) -> Any:
    """A string, mostly; else an object or an array."""
    text = chance.choice(TEXTS)
    return chance.choice([text, text, text, {"task": text, "n": [1, text]}, [text, {"a": None}]])


def _question(chance: random.Random) -> dict[str, Any]:
    kind = chance.choice(("noul", "choice", "score"))
    question: dict[str, Any] = {"type": kind, "instructions": _text(chance)}
    if kind == "choice":
        labels = chance.sample(WORDS, chance.randint(2, len(WORDS)))
        question["criteria"] = {label: chance.choice([None, "", _text(chance)]) for label in labels}
    elif kind == "score":
        question["criteria"] = [_text(chance) for _ in range(chance.randint(2, 10))]
    else:
        sides = {"true": _text(chance), "false": _text(chance)}
        given = [sides, None, {"true": sides["true"]}, {"false": None}]
        question["criteria"] = chance.choice(given)
    return question

"""Compares a choice scored in groups, as the worker does it, with one scored in one row.

python recipe/demo/evaluate_groups.py          the held-out choices, dealt to small groups
python recipe/demo/evaluate_groups.py --wide   every third with options of other domains added

It needs worker-py on the path: `PYTHONPATH=worker-py/src`, or the repository's `.venv`.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Callable, Iterator
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from laya.common import ece_score

from omni_jev_worker import checkpoints
from omni_jev_worker.model import Encoded, Model
from phrasebook import frozen

Question = dict[str, Any]
Case = tuple[Any, Question, str]  # a state, a choice, the right option
Encode = Callable[[Any, Question], Encoded]


def cases() -> list[Case]:
    """The held-out choices, with the right option by its name."""
    choices = [item for item in frozen.read() if item.kind == "choice"]
    return [(i.state, i.question, list(named(i.question))[i.label]) for i in choices]


def named(question: Question) -> dict[str, Any]:
    """A choice's options; a list of labels has no descriptions."""
    criteria = question["criteria"]
    return criteria if isinstance(criteria, dict) else dict.fromkeys(criteria)


def widened(count: int) -> list[Case]:
    """Every third choice, with options from other domains up to the count, shuffled."""
    items = [item for item in frozen.read() if item.kind == "choice"]
    pool = [(i.domain, option) for i in items for option in named(i.question).items()]
    chance = random.Random(1)
    wide = []
    for item in islice(items, 0, None, 3):
        own = named(item.question)
        # Options that are only letters mean nothing elsewhere.
        others = [(k, v) for d, (k, v) in pool if d != item.domain and k not in own and len(k) > 3]
        chance.shuffle(others)
        options = list({**own, **dict(others[: count * 2])}.items())
        options = options[: len(own)] + options[len(own) :][: count - len(own)]
        chance.shuffle(options)
        question = {**item.question, "criteria": dict(options)}
        wide.append((item.state, question, list(own)[item.label]))
    return wide


def in_groups_of(model: Model, size: int) -> Encode:
    """Encode as the worker would if no more options than this fitted a row."""

    def encode(state: Any, question: Question) -> Encoded:
        options = list(named(question).items())
        count = -(-len(options) // size)
        parts = [dict(list(part)) for part in np.array_split(np.array(options, object), count)]
        rows = [model.encode(state, {"q": {**question, "criteria": part}}) for part in parts]
        whole = model.encode(state, {"q": question})
        items = [item for row in rows for item in row.items]
        return Encoded(whole.ids, whole.internal, items, (len(items),), whole.lost)

    return encode


def measure(model: Model, encode: Encode, of: list[Case], name: str) -> dict[str, Any]:
    """Answer all cases; print and give how many are right, and how well that was known."""
    right, known, rows = [], [], []
    for state, question, answer in of:
        encoded = encode(state, question)
        scores = model.infer([encoded])[0]
        if isinstance(scores, Exception):
            raise scores
        given = model.decode(encoded, scores)["q"]
        right.append(float(given["choice"] == answer))
        known.append(given["answer_confidence"])
        rows.append(len(encoded.items))
    accuracy, error = np.mean(right), ece_score(np.array(known), np.array(right))
    print(
        f"{name:28} {len(of):5} {np.mean(rows):8.1f} {accuracy:9.3f} {error:6.3f}",
        flush=True,
    )
    return {
        "scored in": name,
        "items": len(of),
        "rows an item": round(float(np.mean(rows)), 4),
        "accuracy": round(float(accuracy), 4),
        "ece": round(float(error), 4),
    }


def main() -> None:
    """Measures, prints, and writes where that is asked for."""
    parser = argparse.ArgumentParser(description="measures choices that are scored in groups")
    parser.add_argument("--wide", action="store_true", help="with 120 and 255 options")
    parser.add_argument("--write", type=Path, help="also write the results to this file, as JSON")
    options = parser.parse_args()
    model = Model(checkpoints.from_folder(str(frozen.CHECKPOINT)), "cpu")
    print(f"{'':28} items rows/item accuracy    ece")
    found = list(measured_wide(model) if options.wide else measured(model))
    if options.write is not None:
        told = {"versions": {"laya": version("laya"), "torch": version("torch")}, "results": found}
        options.write.write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")


def measured(model: Model) -> Iterator[dict[str, Any]]:
    """Measure the held-out choices as they are, in a row and in groups."""
    yield measure(model, as_served(model), cases(), "2 to 13 options, one row")
    for size in (4, 3, 2):
        yield measure(model, in_groups_of(model, size), cases(), f"groups of {size} at most")


def measured_wide(model: Model) -> Iterator[dict[str, Any]]:
    """Measure choices of very many options."""
    for count in (120, 255):
        of = widened(count)
        yield measure(model, as_served(model), of, f"{count} options, as served")
        if count == 120:
            yield measure(model, in_groups_of(model, 16), of, f"{count} options, groups of 16")


def as_served(model: Model) -> Encode:
    """Encode as the worker does."""
    return lambda state, question: model.encode(state, {"q": question})


if __name__ == "__main__":
    main()

"""The dialect ``jev``: answers as the hosted protocol has them, and its rules for requests."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from omni_jev_worker.protocol.problems import Faults, Location

_FEWEST: Final = 2
_MOST_LEVELS: Final = 10

# What the protocol's answers hold; whatever else laya says goes under `x_`.
_FIELDS: Final[Mapping[str, Sequence[str]]] = {
    "noul": ("type", "noul"),
    "choice": ("type", "choice", "confidence", "probabilities"),
    "score": ("type", "score", "confidence", "legend", "probabilities"),
}


def answer(given: Mapping[str, Any]) -> dict[str, Any]:
    """Turn one of laya's answers into the protocol's.

    The confidence is computed from the probabilities as they are sent, so that a client gets the
    same; laya's own, another quantity, is ``x_laya_confidence``.
    """
    fields = _FIELDS[given["type"]]
    shown = {name: given[name] for name in fields}
    if given["type"] != "noul":
        shown["confidence"] = confidence(given["type"], list(given["probabilities"].values()))
    shown["x_laya_confidence"] = given["confidence"]
    extras = {f"x_{name}": value for name, value in given.items() if name not in fields}
    extras.pop("x_confidence", None)
    return shown | extras


def confidence(kind: str, probabilities: Sequence[float]) -> float:
    """Give Jev's confidence of a choice or score, from 0 to 1, rounded to four places.

    Choice: how far the best option is above chance. Score: how near the probability is to the most
    probable level, against a uniform distribution. 1 where there is nothing to choose from.
    """
    count = len(probabilities)
    if count == 1:
        return 1.0
    best = max(probabilities)
    if kind == "choice":
        value = (best - 1 / count) / (1 - 1 / count)
    else:
        mode = probabilities.index(best)
        spread = sum(p * abs(level - mode) for level, p in enumerate(probabilities))
        # The mean distance from the middle, were all levels equally probable.
        uniform = sum(abs(level - (count - 1) / 2) for level in range(count)) / count
        value = 1 - spread / uniform
    # The numbers are rounded ones, so they can be a hair past the ends.
    return round(min(1.0, max(0.0, value)), 4)


def check_question(here: Location, question: dict[str, Any], faults: Faults) -> dict[str, Any]:
    """Check what the protocol has narrower than Laya, in a question that Laya can answer.

    Gives the question in Laya's form: a null instruction is none.
    """
    at = (*here, "criteria")
    criteria = question.get("criteria")
    if "labels" in question:
        faults.add((*here, "labels"), "The protocol has no labels", "extra_forbidden")
    if question["type"] == "noul":
        for key in criteria or ():
            if key not in ("true", "false"):
                faults.add(at, "Only `true` and `false` are allowed", "extra_forbidden")
    elif question["type"] == "choice" and not isinstance(criteria, dict):
        faults.add(at, "Input should be a valid object", "object_type")
    elif len(criteria or ()) < _FEWEST:
        faults.add(at, f"At least {_FEWEST} are required", "too_short")
    elif question["type"] == "score" and len(criteria or ()) > _MOST_LEVELS:
        faults.add(at, f"At most {_MOST_LEVELS} levels are possible", "too_long")
    if question["instructions"] is None:
        return question | {"instructions": ""}
    return question

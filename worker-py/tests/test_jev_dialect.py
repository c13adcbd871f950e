"""The dialect ``jev``: the protocol's fields, its confidence, and its rules for a request."""

from typing import Any

import pytest

from omni_jev_worker.protocol import jev, render, request
from omni_jev_worker.protocol.dialects import JEV, LAYA
from omni_jev_worker.protocol.limits import Limits
from omni_jev_worker.protocol.problems import Problem

NOUL = {"type": "noul", "instructions": "Refund?"}
EXTRA = {"answer_confidence": 0.88, "action": {"act_probability": 0.5}}
LAYAS: dict[str, dict[str, Any]] = {
    "a": {"type": "noul", "noul": 0.95, "confidence": 0.95, **EXTRA},
    "b": {
        "type": "choice",
        "choice": "billing",
        "probabilities": {"billing": 0.88, "sales": 0.12},
        "confidence": 0.4706,
        **EXTRA,
    },
    "c": {
        "type": "score",
        "score": 1.05,
        "legend": {"0": "Calm", "1": "Frustrated", "2": "Very angry"},
        "probabilities": {"0": 0.0, "1": 0.95, "2": 0.05},
        "confidence": 0.8193,
        **EXTRA,
    },
}
ROUTING = {"model": "demo", "repo": "demo", "reason": "r", "detection": None, "workflow": None}


def shown(dialect: str) -> dict[str, Any]:
    notes: dict[str, dict[str, Any]] = {name: {} for name in LAYAS}
    notes["b"] = {"x_option_groups": 2}
    return render.decision(LAYAS, notes, 7, ROUTING, dialect)


def faults(question: Any = NOUL, state: Any = "x") -> list[tuple[list[Any], str]]:
    body = {"state": state, "questions": {"q": question}}
    request.check(body, Limits(), LAYA)
    with pytest.raises(Problem) as caught:
        request.check(body, Limits(), JEV)
    assert caught.value.status == 422
    return [(fault["loc"][1:], fault["type"]) for fault in caught.value.detail]


def test_it_has_the_protocols_fields_and_all_else_under_x() -> None:
    body = shown(JEV)
    assert set(body) == {"model", "answers", "usage", "x_routing"}
    assert body["model"] == "demo"
    plain = {
        name: {key for key in answer if not key.startswith("x_")}
        for name, answer in body["answers"].items()
    }
    assert plain == {
        "a": {"type", "noul"},
        "b": {"type", "choice", "confidence", "probabilities"},
        "c": {"type", "score", "confidence", "legend", "probabilities"},
    }
    assert body["answers"]["a"]["x_laya_confidence"] == 0.95
    assert body["answers"]["b"]["x_laya_confidence"] == 0.4706
    assert body["answers"]["b"]["x_answer_confidence"] == 0.88
    assert body["answers"]["b"]["x_action"] == {"act_probability": 0.5}
    assert body["answers"]["b"]["x_option_groups"] == 2


def test_its_confidence_is_that_of_the_protocols_own_example() -> None:
    answers = shown(JEV)["answers"]
    assert answers["b"]["confidence"] == 0.76
    assert answers["c"]["confidence"] == 0.925


def test_the_dialect_laya_keeps_upstreams_fields_numbers_and_order() -> None:
    body = shown(LAYA)
    assert list(body) == ["model", "answers", "usage", "routing"]
    assert body["model"] == "laya-rl-agent"
    assert body["answers"] == {**LAYAS, "b": LAYAS["b"] | {"x_option_groups": 2}}


@pytest.mark.parametrize("kind", ["choice", "score"])
@pytest.mark.parametrize(
    ("probabilities", "expected"),
    [([1.0], 1.0), ([1.0, 0.0, 0.0], 1.0), ([0.5, 0.5], 0.0), ([1.0001, 0.0], 1.0)],
)
def test_confidence_is_between_chance_and_certainty(
    kind: str, probabilities: list[float], expected: float
) -> None:
    assert jev.confidence(kind, probabilities) == expected


def test_a_score_that_is_spread_wider_than_chance_has_no_confidence() -> None:
    assert jev.confidence("score", [0.51, 0.0, 0.49]) == 0.0
    assert jev.confidence("score", [0.5, 0.0, 0.5]) == 0.0


@pytest.mark.parametrize(
    ("question", "place", "kind"),
    [
        ({"type": "choice", "criteria": ["a", "b"]}, ["criteria"], "object_type"),
        ({"type": "choice", "criteria": {"only": None}}, ["criteria"], "too_short"),
        ({"type": "score", "criteria": ["only"]}, ["criteria"], "too_short"),
        ({"type": "score", "criteria": [f"{n}" for n in range(11)]}, ["criteria"], "too_long"),
        ({**NOUL, "criteria": {"True": "yes"}}, ["criteria"], "extra_forbidden"),
        ({**NOUL, "labels": {"true": "A", "false": "B"}}, ["labels"], "extra_forbidden"),
    ],
)
def test_what_only_upstream_takes_is_refused_at_its_place(
    question: Any, place: list[Any], kind: str
) -> None:
    assert faults(question) == [(["questions", "q", *place], kind)]


def test_a_null_state_is_refused() -> None:
    assert faults(state=None) == [(["state"], "text_type")]


def test_a_broken_question_after_many_others_is_no_surprise() -> None:
    questions = {str(n): {"type": "score"} for n in range(20)} | {"last": {"type": "choice"}}
    with pytest.raises(Problem) as caught:
        request.check({"state": "x", "questions": questions}, Limits(), JEV)
    assert len(caught.value.detail) == 16


@pytest.mark.parametrize(
    "question",
    [
        {"type": "noul"},
        {"type": "noul", "instructions": None, "criteria": None},
        {"type": "choice", "criteria": {str(n): None for n in range(255)}},
        {"type": "score", "criteria": [f"{n}" for n in range(10)]},
        {**NOUL, "unknown": 1},
    ],
)
def test_what_the_protocol_has_is_taken(question: Any) -> None:
    asked = request.check({"state": "x", "questions": {"q": question}}, Limits(), JEV)
    # A null instruction is none here; upstream reads it as the text `null`.
    assert isinstance(asked.questions["q"]["instructions"], str)

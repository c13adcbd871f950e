"""What a request must hold: the 422 that names the place, or the 413."""

import json
from typing import Any

import pytest

from omni_jev_worker.protocol import request
from omni_jev_worker.protocol.limits import Limits
from omni_jev_worker.protocol.problems import Problem

LIMITS = Limits()
NOUL = {"type": "noul", "instructions": "Refund?"}


def body(question: Any = NOUL, state: Any = "Please refund.") -> dict[str, Any]:
    return {"model": "jev-latest", "state": state, "questions": {"q": question}}


def problem(value: Any, limits: Limits = LIMITS) -> Problem:
    with pytest.raises(Problem) as caught:
        request.check(value, limits)
    json.dumps(caught.value.body).encode()
    return caught.value


def places(value: Any) -> list[tuple[list[Any], str]]:
    found = problem(value)
    assert found.status == 422
    return [(fault["loc"], fault["type"]) for fault in found.detail]


@pytest.mark.parametrize("value", [None, [], "x", 1, True])
def test_a_body_that_is_no_object_is_a_422(value: Any) -> None:
    assert places(value) == [(["body"], "object_type")]


def test_a_missing_field_is_named_in_the_shape_of_the_hosted_api() -> None:
    assert problem({"state": "x"}).body == {
        "detail": [{"loc": ["body", "questions"], "msg": "Field required", "type": "missing"}]
    }


def test_all_faults_are_told_at_once() -> None:
    assert places({"model": 1, "questions": {"a": 1, "b": {}}}) == [
        (["body", "model"], "string_type"),
        (["body", "state"], "missing"),
        (["body", "questions", "a"], "object_type"),
        (["body", "questions", "b", "type"], "missing"),
    ]


@pytest.mark.parametrize("questions", [None, [], "q", 1])
def test_questions_that_are_no_object_are_a_422(questions: Any) -> None:
    assert places({"state": "x", "questions": questions}) == [
        (["body", "questions"], "object_type")
    ]


def test_an_empty_question_map_is_a_422() -> None:
    assert places({"state": "x", "questions": {}}) == [(["body", "questions"], "too_short")]


def test_an_empty_question_id_is_a_422() -> None:
    assert places({"state": "x", "questions": {"": NOUL}}) == [
        (["body", "questions"], "string_too_short")
    ]


@pytest.mark.parametrize("kind", ["box", "boolean", "Noul", "", None, 1, ["noul"], {"a": 1}, True])
def test_an_unknown_type_is_a_422_that_names_it(kind: Any) -> None:
    assert places(body({"type": kind})) == [(["body", "questions", "q", "type"], "literal_error")]


@pytest.mark.parametrize("state", [1, 1.5, True])
def test_a_state_that_is_no_text_is_a_422(state: Any) -> None:
    assert places(body(state=state)) == [(["body", "state"], "text_type")]


@pytest.mark.parametrize(
    ("question", "place", "kind"),
    [
        ({**NOUL, "instructions": 1}, ["instructions"], "text_type"),
        ({**NOUL, "criteria": []}, ["criteria"], "object_type"),
        ({**NOUL, "criteria": {"yes": "x"}}, ["criteria"], "extra_forbidden"),
        ({**NOUL, "criteria": {"true": 1}}, ["criteria", "true"], "text_type"),
        ({**NOUL, "labels": {"true": "A"}}, ["labels"], "labels_type"),
        ({**NOUL, "labels": {"true": "A", "false": " A "}}, ["labels"], "labels_type"),
        ({**NOUL, "labels": {"true": 1, "false": "B"}}, ["labels"], "labels_type"),
        ({"type": "choice"}, ["criteria"], "missing"),
        ({"type": "choice", "criteria": None}, ["criteria"], "object_type"),
        ({"type": "choice", "criteria": {}}, ["criteria"], "too_short"),
        ({"type": "choice", "criteria": [1, 2]}, ["criteria", 0], "string_type"),
        ({"type": "choice", "criteria": [["a"]]}, ["criteria", 0], "string_type"),
        ({"type": "choice", "criteria": {"a": 1}}, ["criteria", "a"], "text_type"),
        (
            {"type": "choice", "criteria": {str(n): None for n in range(256)}},
            ["criteria"],
            "too_long",
        ),
        ({"type": "score"}, ["criteria"], "missing"),
        ({"type": "score", "criteria": {"0": "calm"}}, ["criteria"], "list_type"),
        ({"type": "score", "criteria": ["calm", None]}, ["criteria", 1], "text_type"),
        ({"type": "score", "criteria": ["calm", 2]}, ["criteria", 1], "text_type"),
        ({"type": "score", "criteria": []}, ["criteria"], "too_short"),
    ],
)
def test_a_question_that_cannot_be_answered_is_a_422_that_names_the_place(
    question: Any, place: list[Any], kind: str
) -> None:
    assert (["body", "questions", "q", *place], kind) in places(body(question))


@pytest.mark.parametrize(
    "value",
    [
        body(state=[float("inf")]),
        body({**NOUL, "criteria": {"true": {"x": float("nan")}}}),
        body(state="half \ud83d"),
        body({**NOUL, "instructions": "\udc00"}),
        {"state": "x", "questions": {"\ud800": NOUL}},
        {"state": "x", "questions": {"q": NOUL}, "unknown": "\ud800"},
    ],
)
def test_what_json_can_spell_and_nothing_can_carry_is_a_422(value: Any) -> None:
    assert places(value)[0][0] == ["body"]


@pytest.mark.parametrize(
    ("value", "limits"),
    [
        (body(state="x" * 50_001), LIMITS),
        (body(state={"text": "x" * 50_000}), LIMITS),
        (body({**NOUL, "instructions": "x" * 8_001}), LIMITS),
        (body({"type": "choice", "criteria": {"a": "x" * 8_001}}), LIMITS),
        (body({"type": "choice", "criteria": {"x" * 8_001: None}}), LIMITS),
        ({"state": "x", "questions": {str(n): NOUL for n in range(65)}}, LIMITS),
        ({"state": "x", "questions": {"q" * 513: NOUL}}, LIMITS),
        (body(), Limits(question_characters=3)),
    ],
)
def test_what_is_too_large_is_a_413(value: Any, limits: Limits) -> None:
    found = problem(value, limits)
    assert found.status == 413
    assert found.detail["error_type"] == "invalid_request_error"


@pytest.mark.parametrize(
    "question",
    [
        {"type": "noul"},
        {"type": "noul", "instructions": None, "criteria": None},
        {"type": "noul", "instructions": {"ask": "refund?"}, "criteria": {"true": ["yes"]}},
        {**NOUL, "labels": {"true": "A", "false": "B"}},
        {"type": "choice", "criteria": ["a", "b"]},
        {"type": "choice", "criteria": {"only": None}},
        {"type": "choice", "criteria": {"환불": {"is": "a refund"}, "a.b-c d": None, "😡": ""}},
        {"type": "choice", "criteria": {"": None, "b": None}},
        {"type": "score", "criteria": ["calm", {"how": "angry"}, ["furious"]]},
        {"type": "score", "criteria": ["only"]},
        {"type": "score", "criteria": [f"level {n}" for n in range(11)]},
        {**NOUL, "unknown": 1},
    ],
)
def test_what_the_protocol_or_laya_takes_is_accepted(question: Any) -> None:
    checked = request.check({**body(question), "unknown": 1}, LIMITS)
    assert checked.questions["q"]["type"] == question["type"]
    assert checked.questions["q"].get("criteria") == question.get("criteria")


@pytest.mark.parametrize("state", ["", "x", {}, {"a": [1]}, [], [{"role": "user"}], None])
def test_any_text_object_list_or_null_is_a_state(state: Any) -> None:
    assert request.check(body(state=state), LIMITS).state == state


def test_an_error_does_not_repeat_megabytes_of_names() -> None:
    criteria = {f"{n}" + "x" * 100_000: 1 for n in range(20)}
    assert len(json.dumps(problem(body({"type": "choice", "criteria": criteria})).body)) < 20_000


@pytest.mark.parametrize(
    ("labels", "index"), [(["a", "b", "a"], 2), (["a", ""], 1), (["", ""], 0), ([""], 0)]
)
def test_a_list_of_labels_that_names_one_twice_or_not_at_all_is_a_422(
    labels: list[str], index: int
) -> None:
    question = {"type": "choice", "criteria": labels}
    assert places(body(question))[0][0] == ["body", "questions", "q", "criteria", index]

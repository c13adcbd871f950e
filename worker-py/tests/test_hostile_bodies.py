"""Whatever a client sends is either a request that the model takes, or a 4xx with a body."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from omni_jev_worker import checkpoints
from omni_jev_worker.model import Model, Unanswerable
from omni_jev_worker.protocol import decode, render, request
from omni_jev_worker.protocol.limits import Limits
from omni_jev_worker.protocol.problems import Problem

LIMITS = Limits()

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(st.characters(), max_size=20),
    st.sampled_from(["\ud800", "[MASK]", "[SEP]" * 9, "noul", "choice", "score", "true", "\x00"]),
)
anything = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=8) | st.just("type"), inner, max_size=4)
    ),
    max_leaves=12,
)
kinds = st.sampled_from(["noul", "choice", "score"]) | anything
near_questions = st.fixed_dictionaries(
    {}, optional={"type": kinds, "instructions": anything, "criteria": anything, "labels": anything}
)
near_requests = st.fixed_dictionaries(
    {},
    optional={
        "model": anything,
        "state": anything,
        "questions": st.dictionaries(st.text(max_size=6), near_questions | anything, max_size=3),
    },
)


@pytest.fixture(scope="module")
def model(tiny: Path) -> Model:
    return Model(checkpoints.from_folder(str(tiny)), "cpu")


def answered_or_refused(model: Model, body: bytes) -> None:
    refused: Exception | None = None
    try:
        checked = request.check(decode.parse(body, LIMITS), LIMITS)
        encoded = model.encode(checked.state, checked.questions)
    except (Problem, Unanswerable) as fault:
        refused = fault
    if isinstance(refused, Problem):
        assert 400 <= refused.status < 500
        assert render.to_json(refused.body)
    elif isinstance(refused, Unanswerable):
        assert refused.question in checked.questions
    else:
        scores = model.infer([encoded])[0]
        assert not isinstance(scores, Exception)
        assert render.to_json(model.decode(encoded, scores))


tolerant = settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@tolerant
@given(value=near_requests)
@example(value={"state": "x", "questions": {"q": {"type": ["noul"]}}})
@example(value={"state": [float("nan")], "questions": {"q": {"type": "noul"}}})
@example(value={"state": "x", "questions": {"q": {"type": "score", "criteria": ["a", None]}}})
@example(value={"state": "x", "questions": {"q": {"type": "choice", "criteria": [1, {}]}}})
@example(
    value={"state": "x", "questions": {"q": {"type": "noul", "criteria": {"TRUE": "", "true": {}}}}}
)
def test_a_body_that_is_nearly_a_request_never_breaks_anything(model: Model, value: Any) -> None:
    answered_or_refused(model, json.dumps(value).encode())


@tolerant
@given(body=st.binary(max_size=200) | anything.map(lambda value: json.dumps(value).encode()))
@example(body=b'{"state":1e999,"questions":{}}')
@example(body=b"[" * 100_000)
def test_a_body_of_any_bytes_never_breaks_anything(model: Model, body: bytes) -> None:
    answered_or_refused(model, body)


@tolerant
@given(data=st.data())
def test_a_request_with_some_bytes_changed_never_breaks_anything(
    model: Model, data: st.DataObject
) -> None:
    body = bytearray(
        json.dumps(
            {
                "state": ["Please refund", {"a": 1.5}],
                "questions": {"q": {"type": "score", "criteria": ["calm", "angry"]}},
            }
        ).encode()
    )
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    answered_or_refused(model, bytes(body))

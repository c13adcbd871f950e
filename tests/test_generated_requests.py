"""Generated requests through the frontend, against `laya.Agent` in this process."""

from typing import Any

import pytest

from tests.harness.generated import requests
from tests.harness.omni_jev import OmniJev
from tests.harness.reference import LATEST, make_agent
from tests.harness.subject import chosen

SEED = 20


def assert_same(served: Any, reference: Any, where: str, tolerance: float) -> None:
    """The same fields in the same order, the same texts, and numbers within the tolerance."""
    if isinstance(reference, dict):
        assert list(served) == list(reference), where
        for key, value in reference.items():
            assert_same(served[key], value, f"{where}.{key}", tolerance)
    elif isinstance(reference, list):
        assert len(served) == len(reference), where
        for index, value in enumerate(reference):
            assert_same(served[index], value, f"{where}[{index}]", tolerance)
    elif isinstance(reference, float):
        assert served == pytest.approx(reference, abs=tolerance), where
    else:
        assert type(served) is type(reference), where
        assert served == reference, where


def test_generated_requests_are_answered_field_for_field_as_laya_answers_them(
    pair: OmniJev,
) -> None:
    subject = chosen()
    agent = make_agent(subject.path, subject.device)
    cut = 0
    for number, asked in enumerate(requests(subject.requests, SEED)):
        reference = agent.system_one(asked["state"], asked["questions"])
        answer = pair.decide(asked)
        assert answer.status == 200, (number, answer.body)
        body = answer.json()
        # What is beyond upstream's: which checkpoint answered, as upstream's server has it, and
        # what was cut.
        body.pop("routing")
        notes = [given.pop("x_truncated", None) for given in body["answers"].values()]
        cut += any(notes)
        if LATEST:
            # It also counts what was cut, in a way of its own.
            reference["usage"] = {name: reference["usage"][name] for name in body["usage"]}
        assert_same(body, reference, f"request {number}", subject.tolerance)
    assert 0 < cut < subject.requests

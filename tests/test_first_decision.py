"""The whole path: a client, the frontend, the supervised worker, Laya on the demo checkpoint."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.harness.client import assert_request_ids
from tests.harness.decisions import (
    EVERY_TYPE,
    MOOD,
    REFUND,
    REFUND_TICKET,
    TEAM,
    THANK_YOU_NOTE,
    decision,
)
from tests.harness.logged_process import Event
from tests.harness.omni_jev import DEMO_CHECKPOINT, OmniJev
from tests.harness.reference import make_agent

SystemOne = Callable[[Any, dict[str, dict[str, Any]]], dict[str, Any]]

STATES = [
    pytest.param(REFUND_TICKET, id="text"),
    pytest.param({"subject": "Invoice 4711", "body": REFUND_TICKET}, id="object"),
    pytest.param(
        [{"role": "user", "content": "Hi"}, {"role": "user", "content": REFUND_TICKET}],
        id="conversation",
    ),
    pytest.param("Das Café hat mich zweimal belastet 😡, bitte erstatten.", id="not-ascii"),
    pytest.param("We cannot log in since this morning. " * 200, id="longer-than-the-window"),
]


@pytest.fixture(scope="module")
def system_one() -> SystemOne:
    """Laya's own `Agent.system_one` on the same checkpoint, in this process."""
    answer: SystemOne = make_agent(DEMO_CHECKPOINT).system_one
    return answer


def answers_of(pair: OmniJev, state: object, questions: dict[str, dict[str, Any]]) -> Any:
    answer = pair.decide({"model": "demo", "state": state, "questions": questions})
    assert answer.status == 200, answer.body
    assert answer.content_type == "application/json"
    assert_request_ids(answer)
    body = answer.json()
    assert isinstance(body["model"], str)
    assert body["usage"]["input_tokens"] > 0
    assert isinstance(body["usage"]["output_tokens"], int)
    return body["answers"]


def assert_same(served: object, reference: object, where: str = "answers") -> None:
    """The same keys, strings and, within 1e-3, numbers."""
    if isinstance(reference, dict):
        assert isinstance(served, dict), where
        # The worker may add fields of its own, marked by their prefix.
        assert {key for key in served if not key.startswith("x_")} == set(reference), where
        for key, value in reference.items():
            assert_same(served[key], value, f"{where}.{key}")
    elif isinstance(reference, float):
        assert served == pytest.approx(reference, abs=1e-3), where
    else:
        assert served == reference, where


@pytest.mark.parametrize("state", STATES)
def test_the_answers_through_the_frontend_are_those_of_laya_itself(
    pair: OmniJev, system_one: SystemOne, state: object
) -> None:
    served = answers_of(pair, state, EVERY_TYPE)
    assert_same(served, system_one(state, EVERY_TYPE)["answers"])


@pytest.mark.parametrize("name", EVERY_TYPE)
def test_each_question_type_alone_is_answered_as_laya_itself_does(
    pair: OmniJev, system_one: SystemOne, name: str
) -> None:
    questions = {name: EVERY_TYPE[name]}
    served = answers_of(pair, REFUND_TICKET, questions)
    assert_same(served, system_one(REFUND_TICKET, questions)["answers"])


def test_a_noul_answer_is_a_probability(pair: OmniJev) -> None:
    answer = answers_of(pair, REFUND_TICKET, {"refund": REFUND})["refund"]
    assert answer["type"] == "noul"
    assert 0 <= answer["noul"] <= 1


def test_a_choice_answer_is_the_most_probable_option(pair: OmniJev) -> None:
    answer = answers_of(pair, REFUND_TICKET, {"team": TEAM})["team"]
    probabilities = answer["probabilities"]
    assert answer["type"] == "choice"
    assert list(probabilities) == list(TEAM["criteria"])
    assert answer["choice"] == max(probabilities, key=probabilities.__getitem__)
    assert sum(probabilities.values()) == pytest.approx(1, abs=1e-3)


def test_a_score_answer_is_the_expected_level(pair: OmniJev) -> None:
    answer = answers_of(pair, REFUND_TICKET, {"mood": MOOD})["mood"]
    probabilities = answer["probabilities"]
    assert answer["type"] == "score"
    assert answer["legend"] == {"0": "calm", "1": "annoyed", "2": "furious"}
    expected = sum(int(level) * share for level, share in probabilities.items())
    assert answer["score"] == pytest.approx(expected, abs=1e-3)


def test_a_plea_for_a_refund_asks_for_a_refund(pair: OmniJev) -> None:
    answer = answers_of(pair, REFUND_TICKET, {"refund": REFUND})
    assert answer["refund"]["noul"] > 0.8


def test_a_thank_you_note_does_not_ask_for_a_refund(pair: OmniJev) -> None:
    answer = answers_of(pair, THANK_YOU_NOTE, {"refund": REFUND})
    assert answer["refund"]["noul"] < 0.2


def test_the_models_are_listed_through_the_frontend(pair: OmniJev) -> None:
    answer = pair.ask("GET", "/v1/models")
    assert answer.status == 200
    assert "demo" in [model["name"] for model in answer.json()["models"]]


def test_the_log_says_when_the_worker_is_ready(pair: OmniJev) -> None:
    def says_ready(event: Event) -> bool:
        return event["message"] == "ready"

    pair.process.wait_for("it says ready", says_ready, seconds=10)


def test_health_says_that_the_demo_checkpoint_serves_on_the_processor(pair: OmniJev) -> None:
    health = pair.ask("GET", "/health").json()
    assert health["ready"] is True
    assert health["device"] == "cpu"
    assert "demo" in str(health["checkpoint"])


def test_the_same_request_is_answered_with_the_same_bytes(pair: OmniJev) -> None:
    body = decision(REFUND_TICKET, **EVERY_TYPE)
    assert pair.decide(body).body == pair.decide(body).body

"""The official Python client (PyPI `typesafe-sdk`), with nothing changed but its base URL."""

from collections.abc import Iterator
from typing import Any

import pytest
from typesafe_sdk import (
    Choice,
    ChoiceAnswer,
    Noul,
    NoulAnswer,
    Question,
    Score,
    ScoreAnswer,
    TypeSafeClient,
    TypeSafeUnprocessableEntityError,
)

from tests.harness.decisions import MOOD, REFUND, REFUND_TICKET, TEAM
from tests.harness.omni_jev import OmniJev

QUESTIONS: dict[str, Question] = {
    "refund": Noul(instructions=REFUND["instructions"]),
    "team": Choice(instructions=TEAM["instructions"], criteria=TEAM["criteria"]),
    "mood": Score(instructions=MOOD["instructions"], criteria=MOOD["criteria"]),
}


@pytest.fixture
def client(pair: OmniJev, monkeypatch: pytest.MonkeyPatch) -> Iterator[TypeSafeClient]:
    """Make the client as its documentation does; the environment points it here."""
    monkeypatch.setenv("TYPESAFE_BASE_URL", pair.url)
    monkeypatch.setenv("TYPESAFE_API_KEY", "any-key-will-do")
    with TypeSafeClient() as made:
        yield made


def test_the_official_client_gets_typed_answers(client: TypeSafeClient) -> None:
    result = client.system_one(state=REFUND_TICKET, questions=QUESTIONS)
    refund, team, mood = (result.answers[name] for name in ("refund", "team", "mood"))
    assert isinstance(refund, NoulAnswer)
    assert refund.noul > 0.8
    assert isinstance(team, ChoiceAnswer)
    assert set(team.probabilities) == set(TEAM["criteria"])
    assert isinstance(mood, ScoreAnswer)
    assert mood.legend == {0: "calm", 1: "annoyed", 2: "furious"}
    assert result.usage.input_tokens
    assert result.request_id


def test_the_base_url_may_be_an_argument_too(pair: OmniJev) -> None:
    with TypeSafeClient(base_url=pair.url, api_key="any-key-will-do") as client:
        result = client.system_one(state=REFUND_TICKET, questions=QUESTIONS)
    assert result.nouls["refund"].noul > 0.8


def test_the_official_client_sends_structured_states(client: TypeSafeClient) -> None:
    turns = [{"role": "user", "content": REFUND_TICKET}]
    result = client.system_one(state=turns, questions={"refund": QUESTIONS["refund"]})
    assert 0 <= result.nouls["refund"].noul <= 1


def test_the_official_client_gets_an_answer_to_a_large_state(client: TypeSafeClient) -> None:
    # Over the size at which the client compresses, where it can.
    state = "We cannot log in since this morning. " * 300
    result = client.system_one(state=state, questions={"refund": QUESTIONS["refund"]})
    assert 0 <= result.nouls["refund"].noul <= 1


def test_the_official_client_lists_the_models(client: TypeSafeClient) -> None:
    assert "demo" in [model.name for model in client.models.list().models]


def test_the_official_client_raises_its_own_error_for_an_unknown_question_type(
    client: TypeSafeClient,
) -> None:
    unknown: Any = {"type": "weather"}
    with pytest.raises(TypeSafeUnprocessableEntityError) as caught:
        client.system_one(state=REFUND_TICKET, questions={"sky": unknown})
    assert caught.value.request_id
    assert "sky" in str(caught.value)

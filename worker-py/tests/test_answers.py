"""Answers are laya's own: the same as `Agent.system_one` gives, alone and in a shared batch."""

import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omni_jev_worker import checkpoints
from omni_jev_worker.model import Encoded, Model, Unanswerable
from omni_jev_worker.scores import NotFinite, Scores

QUESTIONS: dict[str, dict[str, Any]] = {
    "refund": {"type": "noul", "instructions": "Does the customer ask for a refund?"},
    "one.sided": {"type": "noul", "instructions": {"ask": "late?"}, "criteria": {"True": ["late"]}},
    "labels": {"type": "noul", "instructions": "a b", "labels": {"true": "A", "false": "B"}},
    "team 😡": {
        "type": "choice",
        "instructions": "Which team?",
        "criteria": {"billing": "money", "delivery": {"is": "a parcel"}, "other": None},
    },
    "list": {"type": "choice", "instructions": None, "criteria": ["angry", "calm", "late", "환불"]},
    "anger": {"type": "score", "instructions": "How angry?", "criteria": ["calm", {"a": 1}, ["x"]]},
    "special": {
        "type": "choice",
        "instructions": "[CLS] [PAD][SEP]",
        "criteria": {"[SEP]": "[MASK]", "[PAD]": None},
    },
    "single": {"type": "choice", "instructions": "", "criteria": {"only": None}},
}
STATES: list[Any] = [
    "Please refund the duplicate charge.",
    "",
    None,
    {"subject": "late parcel", "lines": [1, 2.5, None, True]},
    [{"role": "user", "text": "thank you"}] * 40,
    "환불해 주세요 😡 [MASK] [SEP] [PAD][PAD] [CLS] [UNK] the end",
    "the parcel came late " * 200,
]


@pytest.fixture(scope="module")
def model(tiny: Path) -> Model:
    return Model(checkpoints.from_folder(str(tiny)), "cpu")


@pytest.fixture(scope="module")
def agent(tiny: Path) -> Any:
    from laya.agent import Agent

    return Agent(str(tiny), device="cpu")


def served(model: Model, state: Any, questions: dict[str, Any]) -> tuple[dict[str, Any], int]:
    encoded = model.encode(state, questions)
    scores = model.infer([encoded])[0]
    assert isinstance(scores, Scores)
    return model.decode(encoded, scores), encoded.tokens


def assert_close(given: Any, expected: Any) -> None:
    if isinstance(expected, dict):
        assert list(given) == list(expected)
        for key in expected:
            assert_close(given[key], expected[key])
    elif isinstance(expected, float):
        assert given == pytest.approx(expected, abs=1e-3)
    else:
        assert given == expected


@pytest.mark.parametrize("state", STATES)
def test_all_questions_together_are_answered_as_laya_answers_them(
    model: Model, agent: Any, state: Any
) -> None:
    expected = agent.system_one(state, QUESTIONS)
    answers, tokens = served(model, state, QUESTIONS)
    assert_close(answers, expected["answers"])
    assert tokens == expected["usage"]["input_tokens"]


@pytest.mark.parametrize("name", QUESTIONS)
def test_each_question_alone_is_answered_as_laya_answers_it(
    model: Model, agent: Any, name: str
) -> None:
    questions = {name: QUESTIONS[name]}
    answers, _ = served(model, STATES[0], questions)
    assert_close(answers, agent.system_one(STATES[0], questions)["answers"])


def test_the_tiny_checkpoint_decides_and_does_not_answer_the_same_to_all(model: Model) -> None:
    answers, _ = served(model, STATES[0], QUESTIONS)
    probabilities = list(answers["team 😡"]["probabilities"].values())
    assert max(probabilities) - min(probabilities) > 0.1


def test_requests_of_mixed_lengths_in_one_batch_get_the_answers_of_single_ones(
    model: Model,
) -> None:
    batch = [model.encode(state, QUESTIONS) for state in STATES]
    for encoded, scores, state in zip(batch, model.infer(batch), STATES, strict=True):
        assert isinstance(scores, Scores)
        alone, _ = served(model, state, QUESTIONS)
        assert_close(model.decode(encoded, scores), alone)


def test_too_many_options_for_the_window_are_refused_by_the_questions_name(model: Model) -> None:
    wide = {"type": "choice", "instructions": "", "criteria": [f"option {n}" for n in range(200)]}
    with pytest.raises(Unanswerable, match="200 options") as caught:
        model.encode("x", {"fine": QUESTIONS["refund"], "wide": wide})
    assert caught.value.question == "wide"


def test_numbers_that_are_not_finite_never_become_an_answer(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    forward = model._pass

    def poisoned(arrays: Any, *, amp: bool) -> Any:
        logits, act = forward(arrays, amp=amp)
        logits[1] = float("nan")
        return logits, act

    monkeypatch.setattr(model, "_pass", poisoned)
    one = model.encode("a", {"refund": QUESTIONS["refund"]})
    results = model.infer([one, one, one])
    assert [type(result) for result in results] == [Scores, NotFinite, Scores]


texts = st.recursive(
    st.text(max_size=40),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)
questions = st.dictionaries(
    st.text(min_size=1, max_size=12),
    st.one_of(
        st.fixed_dictionaries({"type": st.just("noul"), "instructions": texts}),
        st.fixed_dictionaries(
            {
                "type": st.just("choice"),
                "instructions": texts,
                "criteria": st.dictionaries(st.text(max_size=12), texts, min_size=1, max_size=4),
            }
        ),
        st.fixed_dictionaries(
            {
                "type": st.just("score"),
                "instructions": texts,
                "criteria": st.lists(texts, min_size=1, max_size=4),
            }
        ),
    ),
    min_size=1,
    max_size=3,
)


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(state=texts, questions=questions)
def test_generated_requests_are_answered_as_laya_answers_them(
    model: Model, agent: Any, state: Any, questions: dict[str, Any]
) -> None:
    expected = agent.system_one(state, questions)
    answers, tokens = served(model, state, questions)
    assert_close(answers, expected["answers"])
    assert tokens == expected["usage"]["input_tokens"]


def test_encoding_keeps_the_clients_order(model: Model) -> None:
    encoded = model.encode("x", dict(reversed(QUESTIONS.items())))
    assert isinstance(encoded, Encoded)
    assert list(encoded.ids) == list(reversed(QUESTIONS))


def test_only_one_module_imports_laya_and_torch() -> None:
    package = Path(sys.modules["omni_jev_worker"].__file__ or "").parent
    importing = {
        path.name
        for path in package.rglob("*.py")
        for line in path.read_text().splitlines()
        if line.split("#")[0]
        .strip()
        .startswith(("import torch", "from torch", "import laya", "from laya"))
    }
    assert importing == {"model.py"}

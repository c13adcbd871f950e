"""Answers are laya's own: the same as `Agent.system_one` gives, alone and in a shared batch."""

import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omni_jev_worker import checkpoints
from omni_jev_worker.model import Encoded, Model
from omni_jev_worker.scores import NotFinite, Scores
from reference import make_agent, readable

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
    return make_agent(tiny)


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
    expected = agent.system_one(readable(state), QUESTIONS)
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


def test_more_options_than_a_row_holds_are_answered_in_groups(model: Model) -> None:
    wide = {
        "type": "choice",
        "instructions": "Team?",
        "criteria": [f"late {n}" for n in range(255)],
    }
    levels = {"type": "score", "instructions": "?", "criteria": [f"angry {n}" for n in range(60)]}
    questions = {"fine": QUESTIONS["refund"], "wide": wide, "levels": levels}
    encoded = model.encode("the parcel", questions)
    assert encoded.groups[0] == 1
    notes = encoded.notes()
    assert notes["fine"] == {}
    assert notes["wide"]["x_option_groups"] == encoded.groups[1] > 1
    answers, _ = served(model, "the parcel", questions)
    assert list(answers["wide"]["probabilities"]) == wide["criteria"]
    assert list(answers["levels"]["probabilities"]) == [str(n) for n in range(60)]
    for name in ("wide", "levels"):
        # Each is rounded to four places.
        assert sum(answers[name]["probabilities"].values()) == pytest.approx(1, abs=255 * 5e-5)
    # The others in the request are answered as they are alone.
    assert_close(
        answers["fine"], served(model, "the parcel", {"fine": questions["fine"]})[0]["fine"]
    )


def test_a_group_is_scored_as_its_options_are_in_a_row_of_their_own(model: Model) -> None:
    labels = [f"late {n}" for n in range(100)]
    encoded = model.encode("x", {"q": {"type": "choice", "instructions": "", "criteria": labels}})
    scores = model.infer([encoded])[0]
    assert isinstance(scores, Scores)
    first = len(encoded.items[0]["markers"])
    part = {"type": "choice", "instructions": "", "criteria": labels[:first]}
    alone = model.infer([model.encode("x", {"q": part})])[0]
    assert isinstance(alone, Scores)
    assert scores.logits[0, :first] == pytest.approx(alone.logits[0, :first], abs=1e-4)
    probabilities = model.decode(encoded, scores)["q"]["probabilities"]
    logits = [
        value
        for row, item in enumerate(encoded.items)
        for value in scores.logits[row, : len(item["markers"])]
    ]
    best = max(range(100), key=lambda n: logits[n])
    assert max(probabilities, key=probabilities.__getitem__) == labels[best]


def test_numbers_that_are_not_finite_never_become_an_answer(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    forward = model._laya._pass

    def poisoned(arrays: Any, *, amp: bool) -> Any:
        scores = forward(arrays, amp=amp)
        scores.logits[1] = float("nan")
        return scores

    monkeypatch.setattr(model._laya, "_pass", poisoned)
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
    expected = agent.system_one(readable(state), questions)
    answers, tokens = served(model, state, questions)
    assert_close(answers, expected["answers"])
    assert tokens == expected["usage"]["input_tokens"]


def test_encoding_keeps_the_clients_order(model: Model) -> None:
    encoded = model.encode("x", dict(reversed(QUESTIONS.items())))
    assert isinstance(encoded, Encoded)
    assert list(encoded.ids) == list(reversed(QUESTIONS))


def test_only_one_module_imports_laya_and_only_those_it_imports_know_torch() -> None:
    assert importing("laya") == {"model.py"}
    # All of them are imported by `model` alone, on the engine's thread.
    network = {"attention.py", "compiled.py", "device_pass.py", "layouts.py", "network.py"}
    known = {
        "accelerator.py",
        "embedding.py",
        "laya_pass.py",
        "model.py",
        "packed.py",
        "placement.py",
    }
    assert importing("torch") == known | network | {
        *("parts.py", "regions.py", "staging.py", "triton_attention.py", "tuned.py")
    }


def importing(package: str) -> set[str]:
    """Give the modules of the worker that import a package as they are imported themselves."""
    folder = Path(sys.modules["omni_jev_worker"].__file__ or "").parent
    return {
        path.name
        for path in folder.rglob("*.py")
        for line in path.read_text().splitlines()
        if line.split("#")[0].strip().startswith((f"import {package}", f"from {package}"))
    }

"""The short way from scores to answers gives laya's own, to the last bit."""

import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from laya.common import QTYPES, temp_bucket

from omni_jev_worker import answers, checkpoints
from omni_jev_worker.answers import Decoder, decoder_for
from omni_jev_worker.model import Model
from omni_jev_worker.scores import Scores
from omni_jev_worker.versions import TESTED

numbers = st.floats(-60, 60, width=32) | st.sampled_from([0.0, 1e-30, -1e4, 1e30])
kinds = st.sampled_from(["noul", "choice", "score"])
names = st.lists(st.text(max_size=5), min_size=1, max_size=40, unique=True)


@pytest.fixture(scope="module")
def model(tiny: Path) -> Model:
    made = Model(checkpoints.from_folder(str(tiny)), "cpu")
    made._agent.temperature = [0.7, 1.3, 2.1]
    made._agent.temperature_by_options = {"choice:3-5": 0.5, "score:6-10": 4.9, "noul:2": 1.1}
    made._decode = decoder_for(made._agent, QTYPES, temp_bucket)
    return made


def question(kind: str, options: list[str]) -> dict[str, Any]:
    crit: Any = None if kind == "noul" else options
    return {"t": kind, "ins": "?", "crit": dict.fromkeys(options) if kind == "choice" else crit}


# Each example has some twenty options and numbers for them all.
@settings(max_examples=300, deadline=None)
@given(data=st.data(), asked=st.lists(st.tuples(kinds, names), min_size=1, max_size=4))
def test_the_answers_are_those_of_laya(model: Model, data: st.DataObject, asked: Any) -> None:
    questions = {str(n): question(*each) for n, each in enumerate(asked)}
    options = [2 if kind == "noul" else len(names) for kind, names in asked]
    size = len(options) * max(options)
    given_logits = data.draw(st.lists(numbers, min_size=size, max_size=size))
    logits = np.array(given_logits, dtype=np.float32).reshape(len(options), -1)
    act = np.full((len(options), 2), data.draw(st.floats(0, 1, width=32)), dtype=np.float32)
    rows = [{"markers": range(count)} for count in options]
    agent = model._agent
    expected = agent._decode_answers(logits, act, rows, list(questions), questions, 0)
    way = decoder_for(agent, QTYPES, temp_bucket)
    # Another laya gives other legends, and is left to itself.
    assert isinstance(way, Decoder) == (version("laya") == TESTED["laya"])
    assert repr(way(logits, act, options, questions)) == repr(expected)


def test_answers_of_groups_are_those_of_laya_with_the_groups_joined(model: Model) -> None:
    wide = {f"option {number}": "late parcel" for number in range(120)}
    encoded = model.encode(
        "late",
        {
            "q": {"type": "choice", "instructions": "team", "criteria": wide},
            "r": {"type": "noul", "instructions": "late?"},
        },
    )
    assert encoded.groups[0] > 1
    chance = np.random.default_rng(1)
    rows = len(encoded.items)
    most = max(len(item["markers"]) for item in encoded.items)
    logits = chance.normal(scale=3, size=(rows, most)).astype(np.float32)
    act = chance.uniform(size=(rows, 2)).astype(np.float32)
    parts = [logits[row, : len(item["markers"])] for row, item in enumerate(encoded.items)]
    joined = np.concatenate(parts[:-1])
    best = int(np.argmax([part.max() for part in parts[:-1]]))
    both = np.stack([joined, np.pad(parts[-1], (0, len(joined) - 2))])
    expected = model._agent._decode_answers(
        both,
        np.stack([act[best], act[-1]]),
        [{"markers": range(120)}, {"markers": range(2)}],
        ["q", "r"],
        encoded.internal,
        0,
    )
    assert repr(model.decode(encoded, Scores(logits, act))) == repr(expected)


def test_probabilities_that_are_no_numbers_are_an_error() -> None:
    way = Decoder(lambda kind, count: 1.0)
    logits = np.array([[np.inf, np.inf]], dtype=np.float32)
    with np.errstate(invalid="ignore"), pytest.raises(ValueError, match="no numbers"):
        way(logits, np.zeros((1, 2), dtype=np.float32), [2], {"q": question("noul", [])})


@pytest.mark.parametrize("field", ["more", "legend"])
def test_a_laya_that_answers_otherwise_is_left_to_itself(
    model: Model,
    tiny: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    field: str,
) -> None:
    own = type(model._agent)._decode_answers

    def otherwise(*given: Any) -> Any:
        found = own(*given)
        for answer in found.values():
            if field == "more":
                answer["more"] = 1
            elif "legend" in answer:
                answer["legend"] = {
                    level: text if isinstance(text, str) else json.dumps(text)
                    for level, text in answer["legend"].items()
                }
        return found

    monkeypatch.setattr(type(model._agent), "_decode_answers", otherwise)
    way = decoder_for(model._agent, QTYPES, temp_bucket)
    assert not isinstance(way, Decoder)
    assert not answers.agrees(way, Decoder(lambda kind, count: 1.0))
    assert caplog.records == []
    Model(checkpoints.from_folder(str(tiny)), "cpu")
    assert [r.message for r in caplog.records if "longer way" in r.message]

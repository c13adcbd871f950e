"""A choice of many options is narrowed as laya narrows it, only where that is asked for."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from laya.shortlist import embed_fn_from_agent, predict_shortlist, shortlist_choice

from omni_jev_worker import checkpoints, embedding, shortlist
from omni_jev_worker.memory import OutOfMemory
from omni_jev_worker.model import Model
from omni_jev_worker.queue import Job
from omni_jev_worker.shortlist import Vectors, rank
from reference import LATEST, make_agent
from running_worker import Reply, RunningWorker
from started_engine import Started, starting

STATE = "please refund the duplicate charge it came late"
OPTIONS = {
    "refund": "money for the customer",
    "parcel": None,
    "late delivery": "the parcel came late",
    "duplicate charge": None,
    "team": "which team should read this",
    "angry": None,
    "open box": {"delivery": "open"},
}
CHOICE = {"type": "choice", "instructions": "which should it is", "criteria": OPTIONS}


def asking(keep: Any = None, **more: Any) -> dict[str, Any]:
    question: dict[str, Any] = {**CHOICE, **more}
    if keep is not None:
        question["x_shortlist"] = keep
    return {"state": STATE, "questions": {"q": question}}


@pytest.fixture(scope="module")
def agent(tiny: Path) -> Any:
    return make_agent(tiny)


def post(worker: RunningWorker, body: Any, path: str = "/v1/systemone") -> Reply:
    return worker.ask("POST", path, json.dumps(body).encode())


def decide(worker: RunningWorker, body: Any) -> Any:
    reply = post(worker, body)
    assert reply.status == 200, reply.body
    return reply.json()


@pytest.mark.parametrize("keep", [2, 3, 6])
@pytest.mark.parametrize("instructions", ["which should it is", "", {"ask": "which"}])
def test_the_kept_options_and_their_answer_are_layas_own(
    keep: int, instructions: Any, worker: RunningWorker, agent: Any
) -> None:
    found = decide(worker, asking(keep, instructions=instructions))["answers"]["q"]
    question = {**CHOICE, "instructions": instructions}
    if LATEST and not instructions:
        pytest.skip("0.4 does not take empty instructions")
    expected = predict_shortlist(agent, STATE, {"q": question}, embed_fn_from_agent(agent), keep)
    told, laya = found["x_shortlist"], expected["shortlist"]["q"]
    assert told["considered"] == laya["labels"]
    assert told["similarities"] == pytest.approx(laya["scores"], abs=1e-4)
    assert (told["k"], told["of"]) == (keep, len(OPTIONS))
    answer = expected["answers"]["q"]
    assert found["choice"] == answer["choice"]
    # All options in the client's order; 0 for those that were not considered.
    assert list(found["probabilities"]) == list(OPTIONS)
    for option, probability in found["probabilities"].items():
        assert probability == pytest.approx(answer["probabilities"].get(option, 0.0), abs=1e-3)
    assert found["confidence"] == pytest.approx(answer["confidence"], abs=1e-3)


def test_options_as_a_list_are_narrowed_too(worker: RunningWorker, agent: Any) -> None:
    labels = ["refund", "parcel", "late delivery", "angry"]
    found = decide(worker, asking(2, criteria=labels))["answers"]["q"]
    assert found["x_shortlist"]["considered"] == shortlist_choice(
        STATE, labels, embed_fn_from_agent(agent), 2, instructions=CHOICE["instructions"]
    )
    assert list(found["probabilities"]) == labels


def test_without_it_nothing_changes_and_other_questions_are_none_of_it(
    worker: RunningWorker,
) -> None:
    plain = post(worker, asking())
    both = {
        **asking(2)["questions"],
        "other": CHOICE,
        "noul": {"type": "noul", "instructions": "?"},
    }
    mixed = decide(worker, {"state": STATE, "questions": both})["answers"]
    other, alone = mixed["other"], plain.json()["answers"]["q"]
    # Rounded to four digits, of sums that depend on what is beside it.
    probabilities, expected = other.pop("probabilities"), alone.pop("probabilities")
    assert probabilities == pytest.approx(expected, abs=2e-4)
    confidence, expected = other.pop("answer_confidence"), alone.pop("answer_confidence")
    assert confidence == pytest.approx(expected, abs=2e-4)
    assert other == alone
    assert "x_shortlist" not in mixed["noul"]
    assert post(worker, asking()).body == plain.body


def test_a_whole_number_is_an_integer_however_json_spells_it(worker: RunningWorker) -> None:
    assert decide(worker, asking(3.0)) == decide(worker, asking(3))


def test_no_more_options_than_are_to_be_kept_are_all_considered(worker: RunningWorker) -> None:
    plain = decide(worker, asking())["answers"]["q"]
    found = decide(worker, asking(len(OPTIONS)))["answers"]["q"]
    told = found.pop("x_shortlist")
    assert told == {"k": len(OPTIONS), "of": len(OPTIONS), "considered": list(OPTIONS)}
    assert found == plain


def test_a_batch_narrows_for_each_state(worker: RunningWorker) -> None:
    states = [STATE, "the parcel came late", STATE]
    body = {"states": states, "questions": asking(3)["questions"]}
    reply = post(worker, body, "/v1/systemone/batch")
    assert reply.status == 200, reply.body
    for state, result in zip(states, reply.json()["results"], strict=True):
        alone = decide(worker, asking(3) | {"state": state})
        assert result["answers"]["q"] == alone["answers"]["q"]


@pytest.mark.parametrize("keep", [1, 0, -3, True, 2.5, "3", [3], {}])
def test_what_is_no_number_of_options_is_refused(keep: Any, worker: RunningWorker) -> None:
    reply = post(worker, asking(keep))
    assert reply.status == 422, reply.body
    assert reply.json()["detail"][0]["loc"] == ["body", "questions", "q", "x_shortlist"]


@pytest.mark.parametrize("kind", ["noul", "score"])
def test_only_a_choice_has_a_shortlist(kind: str, worker: RunningWorker) -> None:
    question: dict[str, Any] = {"type": kind, "instructions": "?", "x_shortlist": 2}
    if kind == "score":
        question["criteria"] = ["calm", "angry", "furious"]
    reply = post(worker, {"state": "x", "questions": {"q": question}})
    assert reply.status == 422, reply.body


def test_the_protocols_dialect_has_it_and_its_confidence_is_of_what_is_sent(tiny: Path) -> None:
    with RunningWorker(["--model", str(tiny), "--dialect", "jev"]) as jev:
        found = decide(jev, asking(2))["answers"]["q"]
    probabilities = list(found["probabilities"].values())
    assert len(probabilities) == len(OPTIONS)
    assert sorted(probabilities)[:-2] == [0.0] * (len(OPTIONS) - 2)
    chance = 1 / len(OPTIONS)
    expected = (max(probabilities) - chance) / (1 - chance)
    assert found["confidence"] == pytest.approx(expected, abs=1e-4)
    assert len(found["x_shortlist"]["considered"]) == 2


def test_of_equal_options_the_earlier_is_kept_and_nothing_is_nearer_than_a_vector_of_zeros() -> (
    None
):
    options = np.array([[1, 0], [0, 0], [2, 0], [0, 3], [-1, 0]], dtype=np.float32)
    order, cosines = rank(options, np.array([4, 0], dtype=np.float32), 4)
    assert order == [0, 2, 1, 3]
    assert cosines == [1.0, 1.0, 0.0, 0.0]
    assert rank(options, np.zeros(2, dtype=np.float32), 3)[0] == [0, 1, 2]


def test_options_are_embedded_once_and_forgotten_in_the_order_of_their_use() -> None:
    vectors = Vectors(most=3)
    one = np.ones(2, dtype=np.float32)
    vectors.remember({"a": one, "b": one, "c": one})
    assert set(vectors.find(["a", "x"])) == {"a"}
    vectors.remember({"d": one})
    assert set(vectors.find(["a", "b", "c", "d"])) == {"a", "c", "d"}
    assert len(vectors) == 3


@pytest.fixture(scope="module")
def engine(tiny: Path) -> Iterator[Started]:
    with starting(tiny) as made:
        yield made


def plan(engine: Started, vectors: Vectors, questions: Any = None) -> shortlist.Plan:
    asked = questions if questions is not None else asking(2)["questions"]
    made = shortlist.plan(engine.model, STATE, asked, vectors)
    assert made is not None
    return made


def embed(engine: Started, made: shortlist.Plan) -> Job:
    rows = made.encoded
    return Job(engine.checkpoint.name, rows, rows.lengths, embeds=True)


def test_only_the_state_is_embedded_when_the_options_are_known(engine: Started) -> None:
    vectors = Vectors()
    first = plan(engine, vectors)
    assert len(first.encoded.items) == 1 + len(OPTIONS)
    job = embed(engine, first)
    engine.queue.put(job)
    rows = job.result.result(60).logits
    found = first.narrow(asking(2)["questions"], rows, vectors)
    again = plan(engine, vectors)
    assert len(again.encoded.items) == 1
    assert again.narrow(asking(2)["questions"], rows[:1], vectors) == found
    two = {"q": asking(2)["questions"]["q"], "r": asking(3)["questions"]["q"]}
    assert len(plan(engine, Vectors(), two).encoded.items) == 2 + len(OPTIONS)


def test_texts_share_passes_with_texts_and_questions_with_questions(engine: Started) -> None:
    vectors = Vectors()
    jobs = [
        embed(engine, plan(engine, vectors)),
        engine.job(STATE),
        embed(engine, plan(engine, vectors)),
    ]
    alone = [engine.ask(STATE), None]
    before = engine.queue.state().batches
    with engine.held():
        for job in jobs:
            engine.queue.put(job)
    vectors_of = [jobs[at].result.result(60).logits for at in (0, 2)]
    assert engine.answers(jobs[1]) == alone[0]
    np.testing.assert_allclose(vectors_of[0], vectors_of[1], atol=1e-5)
    engine.settle()
    assert engine.queue.state().batches == before + 2


def test_an_end_of_memory_while_texts_are_embedded_is_survived(
    engine: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = embedding.embed
    made = plan(engine, Vectors())
    expected = own(engine.model._agent, made.encoded.items)

    def short(agent: Any, items: Any) -> Any:
        if len(items) > 2:
            raise OutOfMemory("made up: no memory")
        return own(agent, items)

    monkeypatch.setattr(embedding, "embed", short)
    splits = engine.engine.snapshot.fallback.splits
    job = embed(engine, made)
    engine.queue.put(job)
    np.testing.assert_allclose(job.result.result(60).logits, expected, atol=1e-5)
    engine.settle()
    assert engine.engine.snapshot.fallback.splits > splits


def test_vectors_of_half_weights_are_near_those_of_whole_ones(tiny: Path) -> None:
    model = Model(checkpoints.from_folder(str(tiny)), "cpu")
    rows = model.encode_texts([STATE], ["parcel", "late delivery"]).items
    whole = embedding.embed(model._agent, rows)
    model._agent.model.encoder.to(torch.bfloat16)
    half = embedding.embed(model._agent, rows)
    for one, other in zip(whole, half, strict=True):
        assert np.dot(one, other) / np.linalg.norm(one) / np.linalg.norm(other) > 0.99


def test_a_request_takes_room_in_the_queue_for_what_it_embeds(engine: Started) -> None:
    many = {f"option {n}": None for n in range(80)}
    question = {**CHOICE, "criteria": many}
    whole = engine.model.most_rows({"q": question})
    narrowed = engine.model.most_rows({"q": {**question, "x_shortlist": 3}})
    assert narrowed == 1 + 1 + 80 // 8
    assert engine.model.most_rows({"q": {**question, "x_shortlist": 80}}) == whole

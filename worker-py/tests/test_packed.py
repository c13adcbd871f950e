"""The unpadded pass on the CPU: the numbers of laya's own, for rows of any lengths together."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tiny_checkpoint
from forms import FORMS, WINDOW, rows
from omni_jev_worker import checkpoints, packed, trial, warmup
from omni_jev_worker.known_answers import KnownAnswers
from omni_jev_worker.laya_pass import LayaPass
from omni_jev_worker.model import Encoded, Model
from omni_jev_worker.packed import PackedForward
from omni_jev_worker.scores import NotFinite, Scores
from started_engine import NOUL, starting

LATE = "The parcel came late. "


def load(folder: Path) -> Model:
    return Model(checkpoints.from_folder(str(folder)), "cpu")


@pytest.fixture(scope="module", params=FORMS)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Model:
    folder = tmp_path_factory.mktemp("form") / "tiny"
    return load(tiny_checkpoint.make(folder, window=WINDOW, **FORMS[request.param]))


def assert_the_same(model: Model, batch: Encoded) -> None:
    made = packed.make(model._agent.model, model.window)
    assert made is not None
    with torch.inference_mode():
        logits, act = made(batch.items)
    for number, item in enumerate(batch.items):
        # By itself, so that the reference has no padding at all.
        expected = model.infer([batch.part([number])])[0]
        assert isinstance(expected, Scores)
        count = len(item["markers"])
        assert logits[number, :count].numpy() == pytest.approx(expected.logits[0, :count], abs=1e-4)
        assert act[number].numpy() == pytest.approx(expected.act[0], abs=1e-5)


@pytest.mark.parametrize("length", [2, 3, 17, 18, 33, 34, 80, WINDOW])
def test_a_row_of_any_length_has_layas_numbers(model: Model, length: int) -> None:
    for options in {1, min(2, length - 1), min(7, length - 1)}:
        assert_the_same(model, rows((length, options)))


def test_rows_of_unlike_lengths_together_have_the_numbers_that_each_has_alone(model: Model) -> None:
    assert_the_same(model, rows((WINDOW, 9), (2, 1), (33, 2), (90, 5), (2, 1), (34, 33)))


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.tuples(st.integers(2, WINDOW), st.integers(1, 20)), min_size=1, max_size=6),
    seed=st.integers(0, 1000),
)
def test_any_batch_has_layas_numbers(model: Model, sizes: list[tuple[int, int]], seed: int) -> None:
    assert_the_same(
        model, rows(*((length, min(options, length - 1)) for length, options in sizes), seed=seed)
    )


def test_the_demo_checkpoint_is_packed_and_answers_as_laya_does() -> None:
    found = checkpoints.find_demo({})
    model = load(found.folder)
    tried = trial.prepare(model, [(f"{n}", model.encode(LATE * n, NOUL)) for n in (1, 9, 300)])
    assert model.pack() is None
    assert model.is_packed
    given = [model.infer([encoded])[0] for _, encoded in tried.requests]
    assert tried.fault(given) is None
    for one, other in zip(tried.expected, given, strict=True):
        assert isinstance(one, Scores)
        assert isinstance(other, Scores)
        assert other.logits == pytest.approx(one.logits, abs=1e-4)


def test_what_is_not_finite_in_one_pass_alone_speaks_against_it() -> None:
    zeros = np.zeros((1, 2), dtype=np.float32)
    scores, none = Scores(zeros, zeros), NotFinite()
    rows_of_one = [("short", rows((9, 2)))]
    assert trial.Trial(rows_of_one, [none]).fault([none]) is None
    assert trial.Trial(rows_of_one, [scores]).fault([scores]) is None
    for wanted, found in ((scores, none), (none, scores)):
        assert "short" in str(trial.Trial(rows_of_one, [wanted]).fault([found]))


def test_layas_answers_are_taken_request_by_request_so_that_none_is_padded_to_the_longest(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[tuple[int, int]] = []
    as_it_is = LayaPass.run

    def counted(self: LayaPass, items: Any, buckets: Any) -> Any:
        length, scores = as_it_is(self, items, buckets)
        ran.append((len(items), length))
        return length, scores

    monkeypatch.setattr(LayaPass, "run", counted)
    with starting(tiny) as started:
        expected = [
            (len(encoded.items), max(encoded.lengths))
            for _, encoded in warmup.encoded(started.model)
        ]
    assert len(expected) == 5
    assert ran == expected


def test_layas_answers_are_kept_for_the_next_start_where_they_took_long(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def known() -> KnownAnswers:
        return KnownAnswers(tmp_path / "known", tiny, {"laya": "1"})

    monkeypatch.setattr(trial, "_WORTH_KEEPING_SECONDS", math.inf)
    with starting(tiny, known=known()) as started:
        assert started.model.is_packed
    assert not (tmp_path / "known").exists()
    monkeypatch.setattr(trial, "_WORTH_KEEPING_SECONDS", 0.0)
    with starting(tiny, known=known()) as started:
        assert started.model.is_packed
    monkeypatch.setattr(LayaPass, "run", _never)
    with starting(tiny, known=known()) as started:
        assert started.model.is_packed


def test_kept_answers_of_laya_that_are_others_keep_the_unpadded_pass_off(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = KnownAnswers(tmp_path, tiny, {})
    monkeypatch.setattr(trial, "_WORTH_KEEPING_SECONDS", 0.0)
    model = load(tiny)
    tried = trial.prepare(model, warmup.encoded(model), known)
    others = [
        Scores(each.logits * 2, each.act) for each in tried.expected if isinstance(each, Scores)
    ]
    known.write(tried.requests, others)
    with starting(tiny, known=known) as started:
        assert not started.model.is_packed


def _never(*_: Any) -> Any:
    raise AssertionError("laya's own pass was to be left alone")


def test_an_encoder_of_another_form_runs_as_laya_runs_it(tmp_path: Path) -> None:
    rotation = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0}
    encoder = {"rope_parameters": dict.fromkeys(KINDS, rotation)}
    model = load(tiny_checkpoint.make(tmp_path / "tiny", encoder=encoder))
    assert model.pack() == "it is not of a known form"
    assert not model.is_packed
    assert isinstance(model.infer([model.encode("late", NOUL)])[0], Scores)


KINDS = ("full_attention", "sliding_attention")


def test_a_pass_that_answers_otherwise_is_not_used_and_the_log_says_so(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    as_it_is = PackedForward.__call__

    def otherwise(self: PackedForward, *arguments: Any) -> Any:
        logits, act = as_it_is(self, *arguments)
        return logits * 1.1, act

    monkeypatch.setattr(PackedForward, "__call__", otherwise)
    with starting(tiny) as started:
        assert not started.model.is_packed
        assert started.engine.snapshot.model.forward == "laya"
    assert any("differ" in record.message for record in caplog.records)


def test_health_says_which_pass_runs(tiny: Path) -> None:
    with starting(tiny) as started:
        assert started.engine.snapshot.model.forward == "packed"
    with starting(tiny, forward="laya") as started:
        assert started.engine.snapshot.model.forward == "laya"
        assert not started.model.is_packed
    with starting(tiny, length_buckets=(32, 64)) as started:
        assert started.engine.snapshot.model.forward == "laya"

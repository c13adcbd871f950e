"""The parity gate: what it lets through, and what it says of what it does not."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from omni_jev_worker import checkpoints, golden, parity
from omni_jev_worker.known_answers import KnownAnswers
from omni_jev_worker.model import Encoded, Model
from omni_jev_worker.parity import TOLERANCE, Report, RowResult, take_reference
from omni_jev_worker.scores import NotFinite, Scores
from omni_jev_worker.tuning import BF16, FP16, FP32, INT8

GOOD = RowResult("good", 8, 2, 0.001, 0.001, 0.001, hard_mismatch=False, near_tie=False)


class Altered:
    """A model whose scores are changed on their way."""

    def __init__(self, model: Model, change: Any) -> None:
        self._model = model
        self._change = change
        self._calls = 0

    def probabilities(self, encoded: Encoded, scores: Scores) -> Any:
        return self._model.probabilities(encoded, scores)

    def infer(self, batch: Any) -> list[Scores | NotFinite]:
        self._calls += 1
        return [
            self._change(row, each, self._calls)
            for row, each in enumerate(self._model.infer(batch))
        ]


@pytest.fixture(scope="module")
def model(tiny: Path) -> Model:
    return Model(checkpoints.from_folder(str(tiny)), "cpu")


def report(model: Model, change: Any) -> Report:
    reference, _ = take_reference(model)
    return reference.compare(Altered(model, change))  # type: ignore[arg-type]


def test_the_same_numbers_pass(model: Model) -> None:
    found = report(model, lambda row, scores, call: scores)
    assert found.fault is None
    assert found.largest < 1e-5
    assert len(found.rows) == len(golden.rows_for(FP32)) >= 20
    assert found.to_json()["passed"] is True


def test_the_rows_are_of_all_types_and_of_many_lengths_up_to_the_window(model: Model) -> None:
    reference, _ = take_reference(model)
    types = {int(item["qtype"]) for encoded in reference.rows for item in encoded.items}
    lengths = {encoded.tokens for encoded in reference.rows}
    assert types == {0, 1, 2}
    assert max(lengths) == model.window
    assert len(lengths) >= 6


def test_a_probability_that_differs_by_more_than_the_tolerance_fails_and_names_its_row(
    model: Model,
) -> None:
    def change(row: int, scores: Scores, call: int) -> Scores:
        # In company only: a fault of padding shows nowhere else.
        if row != 3:
            return scores
        logits = scores.logits.copy()
        # However near to even it was: another option is certain.
        logits[0, logits[0, :2].argmin()] += 100
        return Scores(logits, scores.act)

    found = report(model, change)
    assert found.largest > TOLERANCE
    assert found.worst == golden.rows_for(FP32)[3][0]
    assert found.fault is not None
    assert found.worst in found.fault
    assert f"{found.largest:.4f}" in found.fault


def test_the_probability_to_act_counts_too(model: Model) -> None:
    found = report(
        model, lambda row, scores, call: Scores(scores.logits, np.clip(scores.act + 0.1, 0, 1))
    )
    assert found.fault is not None
    assert "differs" in found.fault


def test_numbers_that_are_not_finite_fail(model: Model) -> None:
    found = report(model, lambda row, scores, call: NotFinite() if row == 2 else scores)
    assert found.fault == "it gives numbers that are not finite"


@pytest.mark.parametrize("name", ["alone", "together", "act"])
def test_a_difference_that_is_no_number_is_no_small_one(name: str) -> None:
    row = dataclasses.replace(GOOD, name="a row", **{name: float("nan")})  # type: ignore[arg-type]
    for rows in ((row, GOOD), (GOOD, row)):
        report = Report(rows, finite=True, repeatable=True)
        assert report.fault == "it gives numbers that are not finite"
        assert report.worst == "a row"
        # What `/health` says of it is JSON.
        json.dumps(report.to_json(), allow_nan=False)


@pytest.mark.parametrize(("near", "opens"), [(3, True), (4, False)])
def test_a_lossy_precision_of_which_many_rows_come_near_to_the_tolerance_fails(
    near: int, *, opens: bool
) -> None:
    half = TOLERANCE / 2
    under = dataclasses.replace(GOOD, alone=half * 0.99)
    over = dataclasses.replace(GOOD, name="a row", together=half * 1.01)
    rows = (*[over] * near, *[under] * (120 - near))
    lossy = Report(rows, finite=True, repeatable=True, lossy=True)
    assert lossy.largest < TOLERANCE
    assert lossy.to_json()["near_tolerance"] == near
    assert (lossy.fault is None) is opens
    if lossy.fault is not None:
        assert f"{near} of 120 rows differ by over half of the tolerance" in lossy.fault
        assert "a row" in lossy.fault
    assert Report(rows, finite=True, repeatable=True).fault is None


def test_whole_numbers_get_everyday_rows_of_all_types_besides_and_no_other_precision_does() -> None:
    few = golden.rows_for(FP32)
    assert golden.rows_for(FP16) == golden.rows_for(BF16) == few
    rows = golden.rows_for(INT8)
    assert rows[: len(few)] == few
    more = rows[len(few) :]
    assert len(more) >= 100
    assert len({name for name, _, _ in rows}) == len(rows)
    assert len({json.dumps([state, asked]) for _, state, asked in more}) == len(more)
    types = [asked["q"]["type"] for _, _, asked in more]
    assert all(types.count(kind) == len(more) / 3 for kind in ("noul", "choice", "score"))
    assert golden.digest(INT8) != golden.digest(FP32) == golden.digest(FP16)


def test_the_reference_of_more_rows_is_another_one_and_kept_apart(
    model: Model, tiny: Path, tmp_path: Path
) -> None:
    few, _ = take_reference(model, KnownAnswers(tmp_path, tiny, {}), FP16)
    many, known = take_reference(model, KnownAnswers(tmp_path, tiny, {}), INT8)
    assert not known
    assert len(many.rows) > len(few.rows)
    assert many.compare(model).lossy
    assert many.of(lambda row: row.tokens < 40).compare(model).lossy
    assert not few.compare(model).lossy
    assert take_reference(model, KnownAnswers(tmp_path, tiny, {}), INT8)[1]


def test_another_answer_to_the_same_call_fails(model: Model) -> None:
    last = len(golden.rows_for(FP32)) + 2

    def change(row: int, scores: Scores, call: int) -> Scores:
        return Scores(scores.logits + 1e-6, scores.act) if call == last else scores

    found = report(model, change)
    assert not found.repeatable
    assert found.fault is not None
    assert "asked again" in found.fault


def test_another_decision_is_hard_only_where_the_reference_was_sure(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    sure, tie = np.array([0.9, 0.1]), np.array([0.505, 0.495])
    for wanted, hard in ((sure, True), (tie, False)):
        given = iter([[wanted], [wanted[::-1]], [wanted]])
        monkeypatch.setattr(model, "probabilities", lambda *_, given=given: next(given))
        scores = Scores(np.zeros((1, 2), np.float32), np.zeros((1, 2), np.float32))
        encoded = model.encode("late", {"q": {"type": "noul", "instructions": "Late?"}})
        row = parity._compare(model, "row", encoded, scores, [scores, scores])
        assert (row.hard_mismatch, row.near_tie) == (hard, not hard)


def test_answers_of_full_precision_are_computed_once_for_the_same_checkpoint(
    model: Model, tiny: Path, tmp_path: Path
) -> None:
    kept = tmp_path / "parity"
    first, known = take_reference(model, KnownAnswers(kept, tiny, {"torch": "1"}))
    assert not known
    ahead = KnownAnswers(kept, tiny, {"torch": "1"})
    ahead.begin()
    again, known = take_reference(model, ahead)
    assert known
    for one, other in zip(first._expected, again._expected, strict=True):
        assert np.array_equal(one.logits, other.logits)
        assert np.array_equal(one.act, other.act)
    assert take_reference(model, KnownAnswers(kept, tiny, {"torch": "2"}))[1] is False


def test_damaged_answers_are_computed_again(
    model: Model, tiny: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kept = tmp_path / "parity"
    take_reference(model, KnownAnswers(kept, tiny, {}))
    (file,) = kept.iterdir()
    for damage in (b"", b"PK\x03\x04 no archive", file.read_bytes()[:200]):
        file.write_bytes(damage)
        reference, known = take_reference(model, KnownAnswers(kept, tiny, {}))
        assert not known
        assert reference.compare(model).fault is None
    assert "not readable" in caplog.text


def test_a_folder_that_cannot_be_written_is_told_and_costs_nothing_else(
    model: Model, tiny: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    _, known = take_reference(model, KnownAnswers(blocked / "parity", tiny, {}))
    assert not known
    assert "cannot be kept" in caplog.text

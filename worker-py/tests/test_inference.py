"""What becomes of a batch that fails: who is affected, and what is told."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pytest

from omni_jev_worker.buckets import EXACT, Buckets
from omni_jev_worker.fallback import Fallback
from omni_jev_worker.inference import Inference
from omni_jev_worker.memory import OutOfMemory
from omni_jev_worker.model import Encoded, Model
from omni_jev_worker.scores import NotFinite, Scores

PADDED = Buckets(lengths=(64,))
REASON = "MPS backend out of memory (MPS allocated: 9 GB)"


@dataclass(frozen=True)
class FakeRows:
    """Rows with a number each; the model gives the number back."""

    items: tuple[int, ...]

    def part(self, rows: Sequence[int]) -> "FakeRows":
        return FakeRows(tuple(self.items[row] for row in rows))


class FakeModel:
    """A model on a device with room for a number of rows, which fails as it is told."""

    runs_compiled = False

    def __init__(self, room: int = 1000) -> None:
        self.device = "mps"
        self.room = room
        self.way_back: RuntimeError | None = None
        self.nan: set[int] = set()
        self.nan_in_company: set[int] = set()
        self.nan_if_padded: set[int] = set()
        self.broken: set[int] = set()
        self.ran: list[tuple[str, tuple[int, ...]]] = []
        self.released = 0

    def infer(self, batch: Sequence[FakeRows], buckets: Buckets = EXACT) -> list[Any]:
        rows = tuple(row for rows in batch for row in rows.items)
        self.ran.append((self.device, rows))
        if self.device == "mps" and len(rows) > self.room:
            raise OutOfMemory(REASON)
        if self.broken & set(rows):
            raise RuntimeError("an index is out of range")
        return [self._result(each, alone=len(batch) == 1, buckets=buckets) for each in batch]

    def _result(self, rows: FakeRows, *, alone: bool, buckets: Buckets) -> Any:
        bad = set(self.nan)
        if not alone:
            bad |= self.nan_in_company
        if buckets != EXACT:
            bad |= self.nan_if_padded
        if bad & set(rows.items):
            return NotFinite()
        logits = np.array([[row, 0] for row in rows.items], dtype=np.float32)
        return Scores(logits, np.ones((len(rows.items), 1), dtype=np.float32))

    def release_memory(self) -> None:
        self.released += 1

    def move_to_cpu(self) -> None:
        self.device = "cpu"

    def return_to_device(self) -> None:
        if self.way_back is not None:
            raise self.way_back
        self.device = "mps"


BATCH = [FakeRows((1, 2)), FakeRows((3,)), FakeRows((4, 5, 6))]


def run(
    model: FakeModel,
    batch: list[FakeRows] = BATCH,
    buckets: Buckets = EXACT,
    fallback: Fallback | None = None,
) -> list[Any]:
    inference = Inference(cast("Model", model), buckets, fallback or Fallback())
    return list(inference.run(cast("list[Encoded]", batch)))


def numbers(results: list[Any]) -> list[Any]:
    """The rows' numbers of each request, or the class of its failure."""
    return [
        [int(row[0]) for row in each.logits] if isinstance(each, Scores) else type(each)
        for each in results
    ]


def test_a_batch_that_works_runs_once() -> None:
    model = FakeModel()
    assert numbers(run(model)) == [[1, 2], [3], [4, 5, 6]]
    assert model.ran == [("mps", (1, 2, 3, 4, 5, 6))]


def test_a_request_that_is_not_finite_in_company_is_answered_alone() -> None:
    model = FakeModel()
    model.nan_in_company = {3}
    assert numbers(run(model)) == [[1, 2], [3], [4, 5, 6]]
    assert model.ran[1:] == [("mps", (3,))]


def test_a_request_that_is_not_finite_padded_is_answered_without_padding() -> None:
    model = FakeModel()
    model.nan_if_padded = {3}
    assert numbers(run(model, [FakeRows((3,))], PADDED)) == [[3]]


def test_a_request_that_is_not_finite_alone_fails_and_no_other_with_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = FakeModel()
    model.nan = {3}
    assert numbers(run(model)) == [[1, 2], NotFinite, [4, 5, 6]]
    errors = [record.message for record in caplog.records if record.levelname == "ERROR"]
    assert len(errors) == 1
    assert "not finite" in errors[0]


def test_a_request_that_was_alone_and_unpadded_is_not_tried_again() -> None:
    model = FakeModel()
    model.nan = {3}
    assert numbers(run(model, [FakeRows((3,))])) == [NotFinite]
    assert len(model.ran) == 1


def test_a_request_that_breaks_the_forward_pass_fails_and_no_other_with_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = FakeModel()
    model.broken = {5}
    assert numbers(run(model)) == [[1, 2], [3], RuntimeError]
    assert "index is out of range" in caplog.text


def test_without_memory_for_the_batch_it_runs_in_parts_on_the_device() -> None:
    model, fallback = FakeModel(room=2), Fallback()
    assert numbers(run(model, fallback=fallback)) == [[1, 2], [3], [4, 5, 6]]
    assert {device for device, _ in model.ran} == {"mps"}
    assert model.released
    assert (fallback.state.splits, fallback.state.count) == (1, 0)
    assert fallback.state.last_reason == REASON


def test_what_does_not_fit_alone_is_answered_on_the_cpu_and_the_model_goes_back() -> None:
    model, fallback = FakeModel(room=0), Fallback()
    assert numbers(run(model, fallback=fallback)) == [[1, 2], [3], [4, 5, 6]]
    assert model.device == "mps"
    assert [rows for device, rows in model.ran if device == "cpu"] == [(n,) for n in range(1, 7)]
    assert (fallback.state.count, fallback.state.since) == (6, None)
    assert fallback.state.last_reason == REASON


def test_a_single_row_is_tried_without_padding_before_the_cpu() -> None:
    model, fallback = FakeModel(room=1), Fallback()
    assert numbers(run(model, [FakeRows((1, 2))], PADDED, fallback)) == [[1, 2]]
    assert fallback.state.count == 0


def test_a_model_that_cannot_go_back_serves_from_the_cpu_and_tries_again_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, fallback = FakeModel(room=0), Fallback()
    model.way_back = RuntimeError("MPS backend out of memory\nand more lines")
    assert numbers(run(model, [FakeRows((1,))], fallback=fallback)) == [[1]]
    assert model.device == "cpu"
    assert fallback.state.since is not None
    assert fallback.state.last_reason == "MPS backend out of memory"
    # Not at each batch: the way back copies the whole model.
    run(model, [FakeRows((2,))], fallback=fallback)
    assert model.device == "cpu"
    model.way_back, model.room = None, 10
    monkeypatch.setattr("omni_jev_worker.fallback._PATIENCE_SECONDS", 0)
    run(model, [FakeRows((3,))], fallback=fallback)
    assert model.device == "mps"
    assert fallback.state.since is None


def test_a_failure_among_the_parts_is_its_requests_alone() -> None:
    model = FakeModel(room=2)
    model.nan = {3}
    assert numbers(run(model)) == [[1, 2], NotFinite, [4, 5, 6]]


def test_without_memory_on_the_cpu_there_is_nowhere_to_go() -> None:
    model = FakeModel()

    def infer(batch: Any, buckets: Buckets = EXACT) -> Any:
        raise OutOfMemory("DefaultCPUAllocator: not enough memory")

    model.infer, model.device = infer, "cpu"  # type: ignore[method-assign]
    assert numbers(run(model)) == [OutOfMemory] * 3

"""The network on devices: the numbers of laya's own pass, however rows lie in memory."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tiny_checkpoint
from forms import FORMS, WINDOW, rows
from omni_jev_worker import accelerator, buckets, checkpoints
from omni_jev_worker.accelerator import Accelerator, Graph
from omni_jev_worker.buckets import Shape
from omni_jev_worker.model import Encoded, Model
from omni_jev_worker.network import attention
from omni_jev_worker.network.attention import RowByRow, SlidingMasks, Unpadded
from omni_jev_worker.network.device_pass import DevicePass
from omni_jev_worker.network.layouts import Layout, PaddedLayout, UnpaddedLayout
from omni_jev_worker.network.network import Network, rotations
from omni_jev_worker.network.parts import take_apart
from omni_jev_worker.scores import Scores

LAYOUTS = ("padded", "unpadded")


class Passes:
    """A model, and its network's passes in each layout."""

    def __init__(self, folder: Path) -> None:
        self.model = Model(checkpoints.from_folder(str(folder)), "cpu")
        made = self.model._agent.model
        parts = take_apart(made)
        self.network = Network(parts, rotations(made, WINDOW), torch.float32)
        sizes = buckets.choose((32, 64, 96), "cpu", WINDOW)
        padded = PaddedLayout(sizes, self.model._agent.tok.pad_token_id, parts.reach, torch.float32)
        self.layouts: dict[str, Layout] = {
            "padded": padded,
            "unpadded": UnpaddedLayout(WINDOW, parts.reach, attention.flash_attention),
        }

    def run(self, layout: str, batch: Encoded) -> Scores:
        on_cpu = accelerator.of("cpu")
        made = DevicePass(self.network, self.layouts[layout], on_cpu, graphs=True)
        return made.start(batch.items).result()


@pytest.fixture(scope="module", params=FORMS)
def passes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Passes:
    folder = tmp_path_factory.mktemp("form") / "tiny"
    return Passes(tiny_checkpoint.make(folder, window=WINDOW, **FORMS[request.param]))


@pytest.fixture(autouse=True)
def flash_attention_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand in for CUDA's kernel: the same arguments and answer, one row after the other."""

    def over(self: Unpadded, queries: Any, keys: Any, values: Any, *, sliding: bool) -> Any:
        ends = self._ends.tolist()
        lengths = [end - start for start, end in pairwise(ends) if end > start]
        assert max(lengths) <= self._longest
        reach = self._reach if sliding and self._reach is not None else WINDOW
        kept = slice(0, ends[-1])
        alone = RowByRow(lengths, SlidingMasks(reach, queries.dtype))
        seen = alone.over(queries[kept], keys[kept], values[kept], sliding=True)
        # As the kernel does: nothing is written for tokens of no row.
        rest = torch.full((len(queries) - ends[-1], seen.shape[1]), float("nan"))
        return torch.cat([seen, rest])

    monkeypatch.setattr(Unpadded, "over", over)


def assert_the_same(passes: Passes, layout: str, batch: Encoded) -> None:
    found = passes.run(layout, batch)
    for number, item in enumerate(batch.items):
        # By itself, so that the reference has no padding at all.
        expected = passes.model.infer([batch.part([number])])[0]
        assert isinstance(expected, Scores)
        count = len(item["markers"])
        assert found.logits[number, :count] == pytest.approx(expected.logits[0, :count], abs=1e-4)
        assert found.act[number] == pytest.approx(expected.act[0], abs=1e-5)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("length", [2, 17, 33, 34, 64, 65, WINDOW])
def test_a_row_of_any_length_has_layas_numbers(passes: Passes, layout: str, length: int) -> None:
    for options in {1, min(2, length - 1), min(7, length - 1)}:
        assert_the_same(passes, layout, rows((length, options)))


@pytest.mark.parametrize("layout", LAYOUTS)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_rows_of_any_lengths_together_have_the_numbers_that_each_has_alone(
    passes: Passes, layout: str, data: st.DataObject
) -> None:
    lengths = data.draw(st.lists(st.integers(2, WINDOW), min_size=1, max_size=9))
    sizes = [(length, data.draw(st.integers(1, min(20, length - 1)))) for length in lengths]
    assert_the_same(passes, layout, rows(*sizes, seed=data.draw(st.integers(0, 99))))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_lay_in_the_memory_before_changes_nothing(passes: Passes, layout: str) -> None:
    made = passes.layouts[layout]
    batch = rows((40, 3), (9, 2), (101, 5))
    shape = made.shape(batch.items)
    filled = []
    for before in (0, -1, 2**31 - 1):
        numbers = np.full(made.size(shape), before, dtype=np.int32)
        made.fill(numbers, shape, batch.items)
        filled.append(numbers)
    # Also for rows that are not there: an index past the end stops a GPU for good.
    assert all(np.array_equal(filled[0], each) for each in filled)


@settings(max_examples=200, deadline=None)
@given(
    lengths=st.lists(st.integers(2, 512), min_size=1, max_size=64),
    options=st.integers(1, 255),
)
def test_no_index_of_a_layout_points_outside(lengths: list[int], options: int) -> None:
    items = [
        {"ids": [7] * length, "markers": [length - 1] * options, "qtype": 2} for length in lengths
    ]
    sizes = buckets.choose(buckets.AUTO, "mps", 512)
    for layout in (
        UnpaddedLayout(512, 64, attention.flash_attention),
        PaddedLayout(sizes, 0, 64, torch.float32),
    ):
        shape = layout.shape(items)
        numbers = np.full(layout.size(shape), 2**31 - 1, dtype=np.int32)
        layout.fill(numbers, shape, items)
        inputs, _ = layout.read(torch.from_numpy(numbers), shape)
        tokens = len(inputs.ids)
        assert tokens >= sum(lengths)
        for index, end in (
            (inputs.ids, 8),
            (inputs.positions, 512),
            (inputs.types, 3),
            (inputs.firsts, tokens),
            (inputs.options, tokens),
        ):
            assert 0 <= int(index.min()) <= int(index.max()) < end
        assert int(inputs.present.sum()) >= len(lengths) * options
        assert inputs.present.shape == inputs.options.shape


@settings(max_examples=200, deadline=None)
@given(lengths=st.lists(st.integers(2, 512), min_size=1, max_size=64))
def test_unpadded_rows_end_where_the_next_begin_and_those_that_are_not_there_are_empty(
    lengths: Sequence[int],
) -> None:
    layout = UnpaddedLayout(512, 64, attention.flash_attention)
    items = [{"ids": [7] * length, "markers": [1], "qtype": 0} for length in lengths]
    shape = layout.shape(items)
    numbers = np.full(layout.size(shape), 99, dtype=np.int32)
    layout.fill(numbers, shape, items)
    _, found = layout.read(torch.from_numpy(numbers), shape)
    assert isinstance(found, attention.Unpadded)
    ends = found._ends.tolist()
    assert len(ends) == shape.rows + 1
    expected = np.cumsum([0, *lengths]).tolist()
    assert ends == expected + [expected[-1]] * (len(ends) - len(expected))
    assert found._longest >= max(lengths)


def test_few_shapes_cover_all_that_a_batch_can_be() -> None:
    layout = UnpaddedLayout(512, 64, attention.flash_attention)
    usual = list(layout.usual())
    assert len(usual) == len(set(usual)) <= 80
    # One row of each length comes first: it is what most requests are.
    assert usual[0] == Shape(1, 32, 16)
    singles = {layout.shape(rows((n, 2)).items) for n in range(3, 513)}
    assert singles <= set(usual[: len(singles)])


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_every_batch_of_up_to_16_options_has_a_shape_that_was_prepared(data: st.DataObject) -> None:
    layout = UnpaddedLayout(512, 64, attention.flash_attention)
    count = data.draw(st.integers(1, 64))
    longest = min(512, 8192 // count)
    lengths = data.draw(st.lists(st.integers(8, longest), min_size=count, max_size=count))
    options = data.draw(st.integers(1, 16))
    items = [{"ids": [7] * n, "markers": [1] * options, "qtype": 0} for n in lengths]
    assert layout.shape(items) in set(layout.usual())


class Recording(Accelerator):
    """The CPU, with graphs that do their work anew; recording fails when told to."""

    has_graphs = True

    def __init__(self) -> None:
        self.fails = False
        self.recorded = 0

    def record(self, work: Callable[[], None]) -> Graph:
        if self.fails:
            raise torch.OutOfMemoryError("no memory is left for a graph")
        self.recorded += 1
        return Replaying(work)


class Replaying:
    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work

    def replay(self) -> None:
        with torch.inference_mode():
            self._work()


def test_a_shape_that_cannot_be_recorded_runs_without_and_others_are_recorded(
    passes: Passes, caplog: pytest.LogCaptureFixture
) -> None:
    device = Recording()
    made = DevicePass(passes.network, passes.layouts["padded"], device, graphs=True)
    one, longer = rows((20, 3)), rows((90, 3))
    expected = passes.run("padded", one)
    device.fails = True
    for _ in range(2):
        assert made.start(one.items).result().logits == pytest.approx(expected.logits)
    assert caplog.text.count("a shape runs unrecorded, which is slower: no memory is left") == 1
    device.fails = False
    made.start(one.items).result()
    assert (made.recorded, device.recorded) == (0, 0)
    again = made.start(longer.items).result()
    assert again.logits == pytest.approx(passes.run("padded", longer).logits)
    assert (made.recorded, device.recorded) == (1, 1)


def test_passes_under_way_at_once_have_memory_of_their_own_which_later_ones_use(
    passes: Passes,
) -> None:
    device = Recording()
    made = DevicePass(passes.network, passes.layouts["padded"], device, graphs=False)
    batches = [rows((20, 3)), rows((31, 2)), rows((90, 3))]
    expected = [passes.run("padded", batch) for batch in batches]
    for _ in range(3):
        running = [made.start(batch.items) for batch in batches]
        for found, wanted in zip(reversed(running), reversed(expected), strict=True):
            assert found.result().logits == pytest.approx(wanted.logits)
    assert len(made._free) == len(batches)


def test_a_pass_gives_its_result_once(passes: Passes) -> None:
    made = DevicePass(passes.network, passes.layouts["padded"], Recording(), graphs=False)
    running = made.start(rows((20, 3)).items)
    running.result()
    with pytest.raises(RuntimeError, match="has given its result"):
        running.result()
    assert len(made._free) == 1


def test_what_a_pass_that_fails_has_used_is_used_again(
    passes: Passes, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = DevicePass(passes.network, passes.layouts["padded"], Recording(), graphs=False)
    batch = rows((20, 3))
    expected = passes.run("padded", batch)
    made.start(batch.items).result()
    with monkeypatch.context() as patch:
        patch.setattr(made, "_compute", lambda *_: 1 / 0)
        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                made.start(batch.items)
    assert len(made._free) == 1
    assert made.start(batch.items).result().logits == pytest.approx(expected.logits)

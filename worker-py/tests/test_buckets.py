"""Few shapes: which lengths there are, and what a padded input looks like."""

from typing import Any

import numpy as np
import pytest

from omni_jev_worker import buckets
from omni_jev_worker.buckets import EXACT, Buckets, Shape
from omni_jev_worker.collate import collate

ITEMS: list[dict[str, Any]] = [
    {"ids": [2, 9, 3, 4, 8, 4, 7, 3], "markers": [3, 5], "qtype": 2},
    {"ids": [2, 9, 3, 4, 8], "markers": [3], "qtype": 0},
    {"ids": [2, 9, 3, 4, 4, 4], "markers": [3, 4, 5], "qtype": 1},
]


@pytest.mark.parametrize("window", [128, 512, 1024, 8192])
def test_the_longest_bucket_is_the_window(window: int) -> None:
    lengths = buckets.choose("auto", "mps", window).lengths
    assert lengths[-1] == window
    assert list(lengths) == sorted(set(lengths))
    assert len(lengths) <= 17


def test_auto_pads_on_a_gpu_and_not_on_a_cpu() -> None:
    assert buckets.choose("auto", "cuda", 512).lengths
    assert buckets.choose("auto", "cpu", 512) == EXACT


def test_off_pads_nowhere_and_a_list_everywhere() -> None:
    assert buckets.choose("off", "cuda", 512) == EXACT
    assert buckets.choose((64, 128, 900), "cpu", 512).lengths == (64, 128, 512)


def test_a_length_goes_to_the_next_bucket() -> None:
    found = Buckets(lengths=(64, 128))
    assert [found.length(n) for n in (1, 64, 65, 128, 200)] == [64, 64, 128, 128, 200]
    assert EXACT.length(77) == 77


def test_every_size_of_an_input_is_padded() -> None:
    found = buckets.choose("auto", "mps", 512)
    assert found.shape(Shape(rows=5, length=70, options=3)) == Shape(6, 96, 4)
    assert EXACT.shape(Shape(5, 70, 3)) == Shape(5, 70, 3)


@pytest.mark.parametrize("pad_to", [EXACT, Buckets((16, 32), (4, 8), (2, 4))])
def test_a_collated_input_holds_each_row_and_only_padding_besides(pad_to: Buckets) -> None:
    arrays = collate(ITEMS, 0, pad_to)
    shape = pad_to.shape(Shape(3, 8, 3))
    assert arrays["input_ids"].shape == (shape.rows, shape.length)
    assert arrays["marker_pos"].shape == (shape.rows, shape.options)
    for row, item in enumerate(ITEMS):
        length, options = len(item["ids"]), len(item["markers"])
        assert arrays["input_ids"][row, :length].tolist() == item["ids"]
        assert not arrays["input_ids"][row, length:].any()
        assert arrays["attention_mask"][row].sum() == length
        assert arrays["marker_pos"][row, :options].tolist() == item["markers"]
        assert arrays["marker_mask"][row].sum() == options
        assert arrays["qtype"][row] == item["qtype"]


def test_a_missing_row_is_a_copy_since_one_of_padding_alone_is_not_a_number() -> None:
    arrays = collate(ITEMS, 0, Buckets(rows=(4,)))
    for array in arrays.values():
        assert np.array_equal(array[3], array[0])


def test_a_collated_input_is_the_one_that_laya_makes() -> None:
    from laya.common import collate_items

    theirs = collate_items([ITEMS], 0)
    for name, array in collate(ITEMS, 0, EXACT).items():
        assert np.array_equal(array, theirs[name].numpy()), name

"""Triton's attention, run by its interpreter where there is no GPU: the numbers of torch's own."""

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest
import torch

from omni_jev_worker.network.attention import RowByRow, SlidingMasks

NAME = "omni_jev_worker.network.triton_attention"


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    if importlib.util.find_spec("triton") is None:
        pytest.skip("torch brings no Triton on this system")
    if not torch.cuda.is_available():
        monkeypatch.setenv("TRITON_INTERPRET", "1")
    before = sys.modules.pop(NAME, None)
    yield importlib.import_module(NAME)
    sys.modules.pop(NAME)
    if before is not None:
        sys.modules[NAME] = before


@pytest.mark.parametrize("size", [16, 64])
@pytest.mark.parametrize("reach", [None, 64, 7])
def test_each_row_sees_itself_alone_and_in_reach_only(
    kernel: ModuleType, size: int, reach: int | None
) -> None:
    torch.manual_seed(1)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    lengths = [5, 200, 64, 1, 130]
    tokens = sum(lengths)
    triple = torch.randn(tokens + 9, 3, 2, size)
    # Empty rows at the end, as a bucket of more rows has them.
    ends = torch.tensor([0, 5, 205, 269, 270, 400, 400, 400], dtype=torch.int32, device=device)
    masks = SlidingMasks(reach if reach is not None else 512, torch.float32)
    whole = [triple[:tokens, part] for part in range(3)]
    expected = RowByRow(lengths, masks).over(*whole, sliding=True)
    half = triple.half().to(device)
    # Queries and keys as the network gives them: dense; values: a part of something wider.
    queries, keys = half[:, 0].contiguous(), half[:, 1].contiguous()
    found = kernel.attend(queries, keys, half[:, 2], ends, 512, reach)
    assert found.shape == (tokens + 9, 2 * size)
    assert float((found[:tokens].float().cpu() - expected).abs().max()) < 5e-3


def test_it_says_which_sizes_of_head_it_takes(kernel: ModuleType) -> None:
    assert kernel.can_take(64)
    assert not kernel.can_take(48)
    assert not kernel.can_take(256)

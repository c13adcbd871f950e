"""Triton's attention, run by its interpreter where there is no GPU: the numbers of torch's own."""

import importlib
import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

from omni_jev_worker.network.attention import RowByRow, SlidingMasks

NAME = "omni_jev_worker.network.triton_attention"


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """Give the module as it runs here: on the GPU, or interpreted."""
    if importlib.util.find_spec("triton") is None:
        pytest.skip("torch brings no Triton on this system")
    if not torch.cuda.is_available():
        monkeypatch.setenv("TRITON_INTERPRET", "1")
    # Triton decides when a kernel is defined whether it will be interpreted.
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


COMPILE = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from omni_jev_worker.network import triton_attention

halves = dict.fromkeys(("queries", "keys", "values", "seen"), "*fp16")
strides = dict.fromkeys(("query_stride", "key_stride", "value_stride", "seen_stride"), "i32")
signature = halves | {"ends": "*i32"} | strides | {"scale": "fp32"}
for size in (16, 64, 128):
    for reach in (-1, 64):
        fixed = {"REACH": reach, "SIZE": size, "BLOCK": 64}
        source = ASTSource(
            fn=triton_attention._kernel,
            signature=signature | dict.fromkeys(fixed, "constexpr"),
            constexprs=fixed,
        )
        for capability in (80, 90):
            target = GPUTarget("cuda", capability, 32)
            made = triton.compile(source, target=target, options={"num_warps": 4, "num_stages": 2})
            assert made.asm["cubin"]
            # What a GPU of either kind lets a block have.
            assert made.metadata.shared <= 99 * 1024
"""


def test_it_compiles_for_gpus_that_are_not_here(tmp_path: Path) -> None:
    if importlib.util.find_spec("triton") is None:
        pytest.skip("torch brings no Triton on this system")
    # In a process of its own: what is interpreted in a process is not compiled in it any more.
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    environment |= {"TRITON_CACHE_DIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", COMPILE], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr

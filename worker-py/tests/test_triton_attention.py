"""Triton's attention, run by its interpreter where there is no GPU: the numbers of torch's own.

In processes of their own: what has been compiled in a process is not interpreted in it any more,
nor the other way round.
"""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

RUN = """
import torch
from omni_jev_worker.network import triton_attention
from omni_jev_worker.network.attention import RowByRow, SlidingMasks

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(1)
lengths = [5, 200, 64, 1, 130]
tokens = sum(lengths)
# Empty rows at the end, as a bucket of more rows has them.
ends = torch.tensor([0, 5, 205, 269, 270, 400, 400, 400], dtype=torch.int32, device=device)
for size in (16, 64):
    assert triton_attention.can_take(size)
    triple = torch.randn(tokens + 9, 3, 2, size)
    half = triple.half().to(device)
    # Queries and keys as the network gives them: dense; values: a part of something wider.
    queries, keys = half[:, 0].contiguous(), half[:, 1].contiguous()
    for reach in (None, 64, 7):
        masks = SlidingMasks(512 if reach is None else reach, torch.float32)
        whole = [triple[:tokens, part] for part in range(3)]
        expected = RowByRow(lengths, masks).over(*whole, sliding=True)
        found = triton_attention.attend(queries, keys, half[:, 2], ends, 512, reach)
        assert found.shape == (tokens + 9, 2 * size)
        difference = float((found[:tokens].float().cpu() - expected).abs().max())
        assert difference < 5e-3, (size, reach, difference)
assert not triton_attention.can_take(48)
assert not triton_attention.can_take(256)
"""

COMPILE = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from omni_jev_worker.network import triton_attention

halves = dict.fromkeys(("queries", "keys", "values", "seen"), "*fp16")
strides = dict.fromkeys(("query_stride", "key_stride", "value_stride", "seen_stride"), "i32")
signature = halves | {"ends": "*i32"} | strides | {"scale": "fp32"}
# Every size, reach and kind of GPU, and on the older kind both reaches of what needs most memory.
for capability, size, reach in (
    (80, 16, 64),
    (80, 128, -1),
    (80, 128, 64),
    (90, 64, -1),
    (90, 64, 64),
):
    fixed = {"REACH": reach, "SIZE": size, "BLOCK": 64}
    source = ASTSource(
        fn=triton_attention._kernel,
        signature=signature | dict.fromkeys(fixed, "constexpr"),
        constexprs=fixed,
    )
    target = GPUTarget("cuda", capability, 32)
    made = triton.compile(source, target=target, options={"num_warps": 4, "num_stages": 2})
    assert made.asm["cubin"]
    # What a GPU of either kind lets a block have.
    assert made.metadata.shared <= 99 * 1024
"""

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="torch brings no Triton on this system"
)


def test_each_row_sees_itself_alone_and_in_reach_only(tmp_path: Path) -> None:
    run(RUN, tmp_path, interpreted=not torch.cuda.is_available())


def test_it_compiles_for_gpus_that_are_not_here(tmp_path: Path) -> None:
    run(COMPILE, tmp_path, interpreted=False)


def run(program: str, cache: Path, *, interpreted: bool) -> None:
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    environment |= {"TRITON_CACHE_DIR": str(cache), "PYTHONPATH": os.pathsep.join(sys.path)}
    if interpreted:
        environment["TRITON_INTERPRET"] = "1"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

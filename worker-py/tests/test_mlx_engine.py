"""The engine `mlx`: torch's numbers through MLX, on whatever device MLX has here."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("mlx.core", reason="MLX is not installed (pip install mlx==0.32.4)")

import tiny_checkpoint
from artifacts_of import adopting
from omni_jev_worker import checkpoints, golden
from omni_jev_worker.artifacts.store import Store
from omni_jev_worker.engines import known
from omni_jev_worker.engines.names import DEVICES, MLX
from omni_jev_worker.exits import Refusal
from omni_jev_worker.model import Model
from omni_jev_worker.scores import Scores
from omni_jev_worker.tuning import FP16, FP32

# MLX is slow on a CPU: short rows alone.
_MOST_TOKENS = 170


@pytest.mark.parametrize(("weights", "most"), [(FP32, 1e-5), (FP16, 0.02)])
def test_its_numbers_are_those_of_torch_on_the_demo_checkpoint(
    tmp_path: Path, weights: str, most: float
) -> None:
    model = Model(checkpoints.find_demo({}), "cpu")
    rows = [model.encode(state, asked) for _, state, asked in golden.rows_for(FP32)]
    rows = [row for row in rows if row.tokens <= _MOST_TOKENS]
    assert len(rows) >= 5
    expected = [model.infer([row])[0] for row in rows]
    engine = known.find(MLX)
    model.export(lambda inner: engine.build(inner, model.window, weights, tmp_path))
    engine.inspect(tmp_path)
    forward = engine.load(tmp_path, model.window, 1)
    together = forward([item for row in rows for item in row.items])
    for at, (row, one) in enumerate(zip(rows, expected, strict=True)):
        assert isinstance(one, Scores)
        for other in (
            forward(row.items),
            Scores(together.logits[at : at + 1], together.act[at : at + 1]),
        ):
            wanted, found = model.probabilities(row, one), model.probabilities(row, other)
            assert np.abs(wanted[0] - found[0]).max() < most
            assert np.abs(one.act - other.act).max() < most


def test_the_gate_opens_for_it_and_a_sliding_layer_sees_no_further_than_it_may(
    tmp_path: Path,
) -> None:
    folder = tiny_checkpoint.make(
        tmp_path / "long",
        encoder={"local_attention": 16, "num_hidden_layers": 4, "global_attn_every_n_layers": 3},
        head_layers=2,
    )
    adoption = adopting(folder, Store(tmp_path / "store"), engine=MLX)
    model = Model(adoption.checkpoint, "cpu")
    state = adoption.apply(model)
    assert state.parity is not None
    assert state.parity.largest < 1e-4
    assert (model.engine, model.device) == (MLX, DEVICES[MLX])


def test_an_activation_that_it_does_not_have_is_refused(tmp_path: Path) -> None:
    folder = tiny_checkpoint.make(tmp_path / "tanh", encoder={"hidden_activation": "tanh"})
    adoption = adopting(folder, Store(tmp_path / "store"), engine=MLX)
    with pytest.raises(Refusal, match="its activation is not one that this engine has"):
        adoption.apply(Model(adoption.checkpoint, "cpu"))


@pytest.mark.parametrize(
    "fields",
    [
        {"act": "eval"},
        {"kinds": []},
        {"kinds": ["backwards"]},
        {"heads": -1},
        {"heads": True},
        {"eps": "small"},
        {"more": 1},
        {"act": ["gelu"]},
    ],
)
def test_a_form_that_is_not_of_a_network_is_refused(
    tiny: Path, tmp_path: Path, fields: Mapping[str, Any]
) -> None:
    model = Model(checkpoints.from_folder(str(tiny)), "cpu")
    engine = known.find(MLX)
    model.export(lambda inner: engine.build(inner, model.window, FP32, tmp_path))
    form = tmp_path / "network.json"
    form.write_text(json.dumps(json.loads(form.read_text()) | fields))
    with pytest.raises(ValueError, match=r"network\.json"):
        engine.inspect(tmp_path)


def test_numbers_that_are_cut_short_are_refused(tiny: Path, tmp_path: Path) -> None:
    model = Model(checkpoints.from_folder(str(tiny)), "cpu")
    engine = known.find(MLX)
    model.export(lambda inner: engine.build(inner, model.window, FP32, tmp_path))
    numbers = tmp_path / "weights.safetensors"
    numbers.write_bytes(numbers.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"weights.safetensors is truncated"):
        engine.inspect(tmp_path)

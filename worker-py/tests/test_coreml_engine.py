"""The engine `coreml`: converted and looked into anywhere, run on a Mac, refused elsewhere."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from omni_jev_worker import checkpoints
from omni_jev_worker.engines import known
from omni_jev_worker.engines.names import COREML
from omni_jev_worker.model import Model
from omni_jev_worker.tuning import FP16
from running_worker import run

# coremltools leaves its scratch folder to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

elsewhere = pytest.mark.skipif(sys.platform == "darwin", reason="this is a Mac")


@elsewhere
@pytest.mark.parametrize("words", [[], ["parity"], ["artifacts", "warm"]])
def test_on_another_system_it_exits_78_and_says_where_it_runs(
    tiny: Path, tmp_path: Path, words: list[str]
) -> None:
    flags = ["--engine", "coreml", "--weights", "fp16", "--artifacts", str(tmp_path)]
    ended = run([*words, "--model", str(tiny), *flags])
    assert ended.returncode == 78
    assert "--engine coreml --weights fp16: Core ML runs on macOS alone" in ended.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def made(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip(
        "coremltools", reason="coremltools is not installed (pip install coremltools==9.0)"
    )
    folder = tmp_path_factory.mktemp("coreml")
    model = Model(checkpoints.from_folder(str(tiny)), "cpu")
    engine = known.find(COREML)
    model.export(lambda inner: engine.build(inner, model.window, FP16, folder))
    return folder


def test_the_program_is_of_one_length_in_half_precision_and_of_known_operators(made: Path) -> None:
    import coremltools

    engine = known.find(COREML)
    engine.inspect(made)
    assert {each.name for each in made.iterdir()} == engine.members
    spec = coremltools.utils.load_spec(str(made / "program.mlmodel"))
    shapes = {each.name: list(each.type.multiArrayType.shape) for each in spec.description.input}
    assert shapes == {
        "ids": [128],
        "kind": [1],
        "full": [1, 128, 128],
        "sliding": [1, 128, 128],
        "options": [16],
        "unseen": [1, 16],
    }
    assert {each.name for each in spec.description.output} == {"logits", "first"}


def test_a_program_that_reads_elsewhere_is_refused(made: Path, tmp_path: Path) -> None:
    import coremltools

    spec = coremltools.utils.load_spec(str(made / "program.mlmodel"))
    (block,) = spec.mlProgram.functions["main"].block_specializations.values()
    stored = next(
        value
        for operation in block.operations
        for value in operation.attributes.values()
        if value.WhichOneof("value") == "blobFileValue"
    )
    stored.blobFileValue.fileName = "/etc/passwd"
    (tmp_path / "program.mlmodel").write_bytes(spec.SerializeToString())
    with pytest.raises(ValueError, match="reads numbers from elsewhere"):
        known.find(COREML).inspect(tmp_path)


def test_the_last_step_outside_the_program_is_that_of_torch(tiny: Path, made: Path) -> None:
    import torch
    from safetensors.numpy import load_file

    from omni_jev_worker.engines.core_ml.forward import acts_of
    from omni_jev_worker.network.parts import take_apart
    from omni_jev_worker.network.regions import decide

    found: dict[str, Any] = {}
    model = Model(checkpoints.from_folder(str(tiny)), "cpu")
    model.export(lambda inner: found.update(parts=take_apart(inner)))
    parts = found["parts"]
    hidden = torch.randn(4, parts.embedding.shape[1], generator=torch.Generator().manual_seed(1))
    present = torch.tensor([[True, True, True, False]])
    with torch.inference_mode():
        logits, acts = decide(
            hidden,
            torch.tensor([0]),
            torch.tensor([[1, 2, 3, 0]]),
            present,
            parts.decision,
            torch.float32,
        )
    given = acts_of(logits.numpy(), hidden[:1].numpy(), 3, load_file(str(made / "act.safetensors")))
    assert np.abs(given - acts.numpy()).max() < 1e-5


def test_a_row_is_padded_and_masked_as_the_network_masks_it(made: Path) -> None:
    from omni_jev_worker.engines.core_ml.forward import inputs_of

    given = inputs_of({"ids": [5, 6, 7], "markers": [1], "qtype": 2}, reach=1)
    assert given["ids"][:4].tolist() == [5, 6, 7, 0]
    assert given["options"][:2].tolist() == [1, 0]
    assert (given["full"][0, 0, :4] == 0).tolist() == [True, True, True, False]
    assert (given["sliding"][0, 0, :4] == 0).tolist() == [True, True, False, False]
    assert (given["unseen"][0, :2] == 0).tolist() == [True, False]

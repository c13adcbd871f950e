"""A checkpoint's files are checked before torch is there, and the faulty one is named."""

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from omni_jev_worker import checkpoints
from omni_jev_worker.exits import BAD_CONFIGURATION, Refusal


@pytest.fixture
def folder(tiny: Path, tmp_path: Path) -> Path:
    """A copy of the tiny checkpoint to damage."""
    return Path(shutil.copytree(tiny, tmp_path / "copy"))


def refusal(folder: Path) -> str:
    with pytest.raises(Refusal) as caught:
        checkpoints.from_folder(str(folder))
    assert caught.value.code == BAD_CONFIGURATION
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_whole_checkpoint_is_accepted(folder: Path) -> None:
    found = checkpoints.from_folder(str(folder))
    assert found.name == "copy"
    assert found.revision is None


@pytest.mark.parametrize("name", checkpoints.FILES)
def test_a_missing_file_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()
    assert name in refusal(folder)


@pytest.mark.parametrize("name", checkpoints.FILES)
def test_a_truncated_file_is_named(folder: Path, name: str) -> None:
    path = folder / name
    path.write_bytes(path.read_bytes()[:-40])
    assert name in refusal(folder)


@pytest.mark.parametrize("name", checkpoints.FILES)
def test_an_empty_file_is_named(folder: Path, name: str) -> None:
    (folder / name).write_bytes(b"")
    assert name in refusal(folder)


@pytest.mark.parametrize("name", [n for n in checkpoints.FILES if n.endswith(".json")])
def test_a_file_that_holds_no_object_is_named(folder: Path, name: str) -> None:
    (folder / name).write_text("[]")
    assert name in refusal(folder)


def _shorter(data: bytes) -> bytes:
    return data[:5]


def _longer(data: bytes) -> bytes:
    return data + b"\0"


def _huge_header(data: bytes) -> bytes:
    return struct.pack("<Q", 2**63) + data[8:]


def _other_header(data: bytes) -> bytes:
    header = json.dumps({"x": {"data_offsets": "none"}}).encode()
    return struct.pack("<Q", len(header)) + header


@pytest.mark.parametrize("damage", [_shorter, _longer, _huge_header, _other_header])
def test_weights_whose_header_lies_are_refused(
    folder: Path, damage: Callable[[bytes], bytes]
) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(damage(path.read_bytes()))
    assert "model.safetensors" in refusal(folder)


def test_weights_of_another_model_are_refused(folder: Path) -> None:
    header = json.dumps({"bert.x": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    data = struct.pack("<Q", len(header)) + header + b"\0" * 4
    (folder / "model.safetensors").write_bytes(data)
    assert "encoder." in refusal(folder)


@pytest.mark.parametrize("missing", ["encoder", "head_layers"])
def test_a_configuration_without_what_laya_needs_is_refused(folder: Path, missing: str) -> None:
    path = folder / "rl_agent_config.json"
    config = json.loads(path.read_text())
    del config[missing]
    path.write_text(json.dumps(config))
    assert missing in refusal(folder)


def test_a_folder_that_is_not_there_is_named_with_the_names_there_are(tmp_path: Path) -> None:
    message = refusal(tmp_path / "nothing")
    assert str(tmp_path / "nothing") in message
    assert "english" in message


def test_a_file_in_the_folders_place_is_refused(tiny: Path) -> None:
    assert "not a folder" in refusal(tiny / "model.safetensors")


def test_the_demo_is_where_the_variable_says(folder: Path) -> None:
    found = checkpoints.find_demo({"OMNI_JEV_DEMO_DIR": str(folder)})
    assert (found.name, found.origin, found.folder) == ("demo", "demo", folder)


def test_a_demo_that_is_not_there_names_the_variable(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="OMNI_JEV_DEMO_DIR") as caught:
        checkpoints.find_demo({"OMNI_JEV_DEMO_DIR": str(tmp_path / "nothing")})
    assert caught.value.code == BAD_CONFIGURATION

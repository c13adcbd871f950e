"""A checkpoint's files are checked before torch is there, and the faulty one is named."""

import errno
import json
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

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


def header_of(path: Path) -> tuple[dict[str, Any], bytes]:
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def with_header(header: Any, data: bytes) -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:5],
        lambda data: data + b"\0",
        lambda data: struct.pack("<Q", 2**63) + data[8:],
        lambda data: with_header({"x": {"data_offsets": "none"}}, b""),
        lambda data: with_header([], b""),
        lambda data: with_header({"x": []}, b""),
        lambda data: struct.pack("<Q", 4) + b"\xff\xff\xff\xff",
    ],
)
def test_a_file_of_weights_that_is_no_safetensors_file_is_refused(
    folder: Path, damage: Callable[[bytes], bytes]
) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(damage(path.read_bytes()))
    assert "model.safetensors" in refusal(folder)


TENSOR = "scorer.1.weight"


def _negative(header: dict[str, Any]) -> None:
    header[TENSOR]["data_offsets"][0] = -5


def _overlapping(header: dict[str, Any]) -> None:
    header[TENSOR]["data_offsets"] = header["scorer.0.weight"]["data_offsets"]
    header[TENSOR]["shape"] = header["scorer.0.weight"]["shape"]


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (lambda header: header[TENSOR].update(dtype="F99"), "F99"),
        (lambda header: header[TENSOR].update(dtype=None), TENSOR),
        (lambda header: header[TENSOR].pop("shape"), TENSOR),
        (lambda header: header[TENSOR].update(shape=[3, 3]), TENSOR),
        (lambda header: header[TENSOR].update(shape=[-32, -32]), TENSOR),
        (lambda header: header[TENSOR].update(shape=[True]), TENSOR),
        (lambda header: header[TENSOR].update(data_offsets=[0]), TENSOR),
        (_negative, TENSOR),
        (_overlapping, "overlaps"),
        (lambda header: header.pop(TENSOR), "gap"),
    ],
)
def test_weights_whose_header_lies_about_a_tensor_are_refused(
    folder: Path, damage: Callable[[dict[str, Any]], Any], named: str
) -> None:
    path = folder / "model.safetensors"
    header, data = header_of(path)
    damage(header)
    path.write_bytes(with_header(header, data))
    message = refusal(folder)
    assert "model.safetensors" in message
    assert named in message


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


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("max_len", value) for value in ("abc", None, True, 1.5, 0, -1, 16, 100_000, 10**9)),
        *(("head_layers", value) for value in ("2", True, -1, 99)),
        *(("head_max_len", value) for value in ("abc", None, 0, 100_000)),
        ("encoder", ""),
        ("act_costs", 3),
        ("temperature", [1.0]),
        ("temperature", {"noul": 1.0}),
        ("temperature_by_options", [1.0]),
    ],
)
def test_a_setting_of_the_wrong_type_or_out_of_range_is_named(
    folder: Path, key: str, value: Any
) -> None:
    path = folder / "rl_agent_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    message = refusal(folder)
    assert f"`{key}`" in message
    assert "rl_agent_config.json" in message


def test_what_laya_has_a_default_for_may_be_absent(folder: Path) -> None:
    path = folder / "rl_agent_config.json"
    path.write_text(json.dumps({"encoder": "x", "head_layers": 1}))
    assert checkpoints.from_folder(str(folder)).name == "copy"


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig"])
def test_json_in_an_encoding_that_laya_does_not_read_is_refused(
    folder: Path, encoding: str
) -> None:
    path = folder / "rl_agent_config.json"
    path.write_bytes(path.read_text().encode(encoding))
    assert "rl_agent_config.json" in refusal(folder)


@pytest.mark.parametrize("key", ["model", "added_tokens"])
def test_a_tokenizer_without_its_parts_is_refused(folder: Path, key: str) -> None:
    path = folder / "tokenizer" / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    del tokenizer[key]
    path.write_text(json.dumps(tokenizer))
    assert f"tokenizer/tokenizer.json has no `{key}`" in refusal(folder)


@pytest.mark.parametrize("name", [*checkpoints.FILES, "tokenizer", "."])
def test_a_file_that_this_user_may_not_read_is_named_with_the_cure(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    # Not by the file's mode: whoever runs the tests may be allowed to read everything.
    denied = folder / name

    def refusing(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Path, *arguments: Any, **named: Any) -> Any:
            # A folder that may not be searched can still be looked at itself.
            if denied in path.parents or (denied == path and denied != folder):
                raise PermissionError(errno.EACCES, "Permission denied", str(path))
            return real(path, *arguments, **named)

        return call

    for method in ("stat", "open", "read_bytes"):
        monkeypatch.setattr(Path, method, refusing(getattr(Path, method)))
    message = refusal(folder)
    assert "read access" in message
    assert name.strip(".") in message


def test_a_file_that_is_a_folder_or_a_pipe_is_named(folder: Path) -> None:
    weights = folder / "model.safetensors"
    weights.unlink()
    os.mkfifo(weights)
    assert "model.safetensors is no file" in refusal(folder)


def test_a_link_that_leads_nowhere_is_a_missing_file(folder: Path) -> None:
    weights = folder / "model.safetensors"
    weights.unlink()
    weights.symlink_to(folder / "blob")
    assert "model.safetensors is missing" in refusal(folder)


def test_a_failing_disk_is_no_fault_of_the_checkpoint(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: Path) -> Any:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(Path, "read_bytes", fail)
    with pytest.raises(OSError, match="Input/output"):
        checkpoints.from_folder(str(folder))


def test_the_date_of_a_checkpoint_is_that_of_its_weights(folder: Path) -> None:
    os.utime(folder / "model.safetensors", (0, 1_769_860_800))
    assert checkpoints.from_folder(str(folder)).released.isoformat() == "2026-01-31"


@pytest.mark.parametrize("name", ["x" * 5_000, "model.safetensors/x", "loop/x"])
def test_a_path_that_can_be_no_folder_is_refused_in_a_short_line(folder: Path, name: str) -> None:
    (folder / "loop").symlink_to(folder / "loop")
    assert len(refusal(folder / name)) < 500
    with pytest.raises(Refusal, match="OMNI_JEV_DEMO_DIR") as caught:
        checkpoints.find_demo({"OMNI_JEV_DEMO_DIR": str(folder / name)})
    assert caught.value.code == BAD_CONFIGURATION


def test_a_folder_that_is_not_there_is_named_with_the_names_there_are(tmp_path: Path) -> None:
    message = refusal(tmp_path / "nothing")
    assert str(tmp_path / "nothing") in message
    assert "english" in message


def test_a_file_in_the_folders_place_is_refused(tiny: Path) -> None:
    assert "this is a file or a device, not a folder" in refusal(tiny / "model.safetensors")


def test_the_demo_is_where_the_variable_says(folder: Path) -> None:
    found = checkpoints.find_demo({"OMNI_JEV_DEMO_DIR": str(folder)})
    assert (found.name, found.origin, found.folder) == ("demo", "demo", folder)


def test_a_demo_that_is_not_there_names_the_variable(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="OMNI_JEV_DEMO_DIR") as caught:
        checkpoints.find_demo({"OMNI_JEV_DEMO_DIR": str(tmp_path / "nothing")})
    assert caught.value.code == BAD_CONFIGURATION

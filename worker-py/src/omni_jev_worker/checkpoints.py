"""Finds a checkpoint's folder and checks its files, without torch.

A checkpoint is a folder in Laya's format: ``rl_agent_config.json``, ``model.safetensors``,
``encoder/config.json`` and ``tokenizer/``. A missing or truncated file is found here in
milliseconds and named in one line, instead of after seconds of imports in a traceback.
"""

import json
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from omni_jev_worker.exits import bad_configuration

REPOSITORY: Final = "convaiinnovations/laya"

HUB_FOLDERS: Final[Mapping[str, str | None]] = {
    "english": None,
    "multilingual": "multilingual",
    "typed-decisions": "typed-decisions",
}
"""The published checkpoints and the repository's subfolder that holds each."""

DEMO: Final = "demo"

FILES: Final = (
    "rl_agent_config.json",
    "model.safetensors",
    "encoder/config.json",
    "tokenizer/tokenizer.json",
    "tokenizer/tokenizer_config.json",
)

DEMO_NOTE: Final = (
    "the demo checkpoint is a small model trained on made-up tickets: it shows the path, "
    "not Laya's quality (--model english is Laya)"
)

_MAX_HEADER_BYTES: Final = 100_000_000  # safetensors' own bound
_REQUIRED_WEIGHTS: Final = ("encoder.", "type_emb.", "scorer.", "act_head.")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint that is on this machine, with its files checked."""

    name: str
    """What requests and `/v1/models` call it."""
    origin: str
    """Where it came from: a repository (with subfolder), `demo`, or the folder's name."""
    revision: str | None
    """The commit of a hub checkpoint; none for a folder."""
    folder: Path


def known_names() -> tuple[str, ...]:
    """Give the names that ``--model`` takes besides a folder."""
    return (DEMO, *HUB_FOLDERS)


def from_folder(path: str) -> Checkpoint:
    """Give the checkpoint in a folder. Raises `Refusal` naming what is wrong with it."""
    folder = Path(path)
    if not folder.is_dir():
        names = ", ".join(known_names())
        reason = "is not a folder" if folder.exists() else "does not exist"
        raise bad_configuration(f"--model {path}: this folder {reason} (names: {names})")
    check_files(folder)
    name = folder.resolve().name
    return Checkpoint(name=name, origin=name, revision=None, folder=folder.resolve())


def find_demo(environment: Mapping[str, str]) -> Checkpoint:
    """Give the demo checkpoint: ``OMNI_JEV_DEMO_DIR``, else the one of this source tree."""
    given = environment.get("OMNI_JEV_DEMO_DIR")
    if given:
        candidates = [Path(given)]
    else:
        parents = Path(__file__).resolve().parents
        candidates = [parent / "recipe" / "demo" / "checkpoint" for parent in parents]
    folder = next((candidate for candidate in candidates if candidate.is_dir()), None)
    if folder is None:
        where = given or "recipe/demo/checkpoint of the repository"
        raise bad_configuration(
            f"--model demo: no folder at {where}: set OMNI_JEV_DEMO_DIR to the demo checkpoint"
        )
    check_files(folder)
    return Checkpoint(name=DEMO, origin=DEMO, revision=None, folder=folder.resolve())


def check_files(folder: Path) -> None:
    """Check that a checkpoint's files are there and whole. Raises `Refusal` naming the file."""
    for name in FILES:
        if not (folder / name).is_file():
            raise bad_configuration(f"checkpoint {folder}: the file {name} is missing")
    config = _json_object(folder, "rl_agent_config.json")
    if not isinstance(config.get("encoder"), str):
        raise _fault(folder, "rl_agent_config.json", "has no `encoder` name")
    if not isinstance(config.get("head_layers"), int):
        raise _fault(folder, "rl_agent_config.json", "has no number of `head_layers`")
    encoder = _json_object(folder, "encoder/config.json")
    if not isinstance(encoder.get("model_type"), str):
        raise _fault(folder, "encoder/config.json", "has no `model_type`")
    _json_object(folder, "tokenizer/tokenizer_config.json")
    _check_tokenizer(folder)
    _check_weights(folder)


def _json_object(folder: Path, name: str) -> dict[str, Any]:
    try:
        value = json.loads((folder / name).read_bytes())
    except (OSError, ValueError, RecursionError) as fault:
        raise _fault(folder, name, f"cannot be read as JSON ({type(fault).__name__})") from None
    if not isinstance(value, dict):
        raise _fault(folder, name, "is not a JSON object")
    return value


def _check_tokenizer(folder: Path) -> None:
    """Read a small tokenizer as JSON; of a large one (34 MB) look at both ends only."""
    name = "tokenizer/tokenizer.json"
    path = folder / name
    if path.stat().st_size <= 8_000_000:
        _json_object(folder, name)
        return
    with path.open("rb") as file:
        start = file.read(64).lstrip()
        file.seek(-64, os.SEEK_END)
        end = file.read().rstrip()
    if not start.startswith(b"{") or not end.endswith(b"}"):
        raise _fault(folder, name, "is truncated")


def _check_weights(folder: Path) -> None:
    """Compare the header of a safetensors file with the file's size.

    The format: 8 bytes little-endian length, a JSON header with each tensor's ``data_offsets``,
    then the data. https://github.com/huggingface/safetensors#format
    """
    name = "model.safetensors"
    path = folder / name
    size = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
        if not 2 <= length <= min(_MAX_HEADER_BYTES, size):
            raise _fault(folder, name, f"is truncated or no safetensors file ({size} bytes)")
        header = file.read(length)
    try:
        tensors = json.loads(header)
        ends = [entry["data_offsets"][1] for key, entry in tensors.items() if key != "__metadata__"]
        wanted = 8 + length + max(ends)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
        raise _fault(folder, name, "has a damaged header") from None
    if size != wanted:
        state = "is truncated" if size < wanted else "has bytes after its end"
        raise _fault(folder, name, f"{state}: {size} bytes, its header says {wanted}")
    for prefix in _REQUIRED_WEIGHTS:
        if not any(key.startswith(prefix) for key in tensors):
            raise _fault(folder, name, f"holds no `{prefix}*` weights: it is no Laya model")


def _fault(folder: Path, name: str, what: str) -> Exception:
    return bad_configuration(f"checkpoint {folder}: the file {name} {what}")

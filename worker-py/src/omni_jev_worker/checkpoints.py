"""Finds a checkpoint's folder and checks its files, without torch.

A checkpoint is a folder in Laya's format: ``rl_agent_config.json``, ``model.safetensors``,
``encoder/config.json`` and ``tokenizer/``. A missing or truncated file is found here in
milliseconds and named in one line, instead of after seconds of imports in a traceback.
"""

import json
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Final

from omni_jev_worker import weights
from omni_jev_worker.exits import Refusal, bad_configuration
from omni_jev_worker.faults import is_the_machines, one_line

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

WEIGHTS: Final = "model.safetensors"
"""The file of a checkpoint's weights."""
_REQUIRED_WEIGHTS: Final = ("encoder.", "type_emb.", "scorer.", "act_head.")

# Whole numbers of rl_agent_config.json: least, most, and whether laya has no default for it. A
# window holds at least the special tokens, 8 of the instruction and two short options; 8,192 is
# the longest that an encoder of this family has.
_NUMBERS: Final = {
    "head_layers": (0, 64, True),
    "max_len": (32, 8192, False),
    "head_max_len": (16, 8192, False),
}


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
    released: date
    """The date of its weights on this machine, as they were when they were checked."""


def origin_of(name: str) -> str:
    """Give the origin of a published checkpoint: the repository, with the subfolder if any."""
    subfolder = HUB_FOLDERS[name]
    return f"{REPOSITORY}/{subfolder}" if subfolder else REPOSITORY


def known_names() -> tuple[str, ...]:
    """Give the names that ``--model`` takes besides a folder."""
    return (DEMO, *HUB_FOLDERS)


def from_folder(path: str) -> Checkpoint:
    """Give the checkpoint in a folder. Raises `Refusal` naming what is wrong with it."""
    folder = Path(path)
    names = ", ".join(known_names())
    if (reason := _no_folder(folder)) is not None:
        raise bad_configuration(f"--model {one_line(path, 200)}: {reason} (names: {names})")
    released = check_files(folder)
    folder = folder.resolve()
    return Checkpoint(folder.name, folder.name, revision=None, folder=folder, released=released)


def find_demo(environment: Mapping[str, str]) -> Checkpoint:
    """Give the demo checkpoint: ``OMNI_JEV_DEMO_DIR``, else the one of this source tree."""
    given = environment.get("OMNI_JEV_DEMO_DIR")
    if given:
        candidates = [Path(given)]
    else:
        parents = Path(__file__).resolve().parents
        candidates = [parent / "recipe" / "demo" / "checkpoint" for parent in parents]
    reasons = {folder: _no_folder(folder) for folder in candidates}
    folder = next((folder for folder, reason in reasons.items() if reason is None), None)
    if folder is None:
        where = "recipe/demo/checkpoint of the repository: there is no such folder"
        if given:
            where = f"{one_line(given, 200)}: {reasons[candidates[0]]}"
        raise bad_configuration(
            f"--model demo: {where}: set OMNI_JEV_DEMO_DIR to the demo checkpoint's folder"
        )
    released = check_files(folder)
    return Checkpoint(DEMO, DEMO, revision=None, folder=folder.resolve(), released=released)


def _no_folder(path: Path) -> str | None:
    """Say why a path is no folder; none if it is one."""
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return "there is no such folder"
    except OSError as fault:
        if is_the_machines(fault):
            raise
        # A name too long, a loop of links, a folder that may not be searched.
        return f"no folder can be read there ({fault.strerror})"
    return None if stat.S_ISDIR(mode) else "this is a file or a device, not a folder"


def check_files(folder: Path) -> date:
    """Check that a checkpoint's files are there and whole; give the date of the weights.

    Raises `Refusal` naming the file.
    """
    for name in FILES:
        with _reading(folder, name):
            if not stat.S_ISREG((folder / name).stat().st_mode):
                raise _fault(folder, name, "is no file")
    _check_config(folder, "rl_agent_config.json")
    encoder = _json_object(folder, "encoder/config.json")
    if not isinstance(encoder.get("model_type"), str):
        raise _fault(folder, "encoder/config.json", "has no `model_type`")
    _json_object(folder, "tokenizer/tokenizer_config.json")
    _check_tokenizer(folder)
    _check_weights(folder)
    with _reading(folder, WEIGHTS):
        changed = (folder / WEIGHTS).stat().st_mtime
        return datetime.fromtimestamp(changed, UTC).date()


@contextmanager
def _reading(folder: Path, name: str) -> Iterator[None]:
    """Turn a failure to read a file into its refusal, unless the machine is at fault."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError):
        # So says a link that leads nowhere, too: a hub cache whose blob is gone.
        raise _fault(folder, name, "is missing") from None
    except PermissionError:
        what = "may not be read by this user: give it read access, to the folders above it too"
        raise _fault(folder, name, what) from None
    except OSError as fault:
        if is_the_machines(fault):
            raise
        raise _fault(folder, name, f"cannot be read ({fault.strerror or fault})") from None


def _check_config(folder: Path, name: str) -> None:
    """Check what laya takes from its own configuration, unchecked."""
    config = _json_object(folder, name)
    if not isinstance(config.get("encoder"), str) or not config["encoder"]:
        raise _fault(folder, name, "has no `encoder` name")
    for key, (least, most, required) in _NUMBERS.items():
        if key not in config and not required:
            continue
        value = config.get(key)
        # Not isinstance: `true` is an int to Python.
        if type(value) is not int or not least <= value <= most:
            what = f"has no whole number from {least} to {most} as `{key}`"
            raise _fault(folder, name, what)
    if not isinstance(config.get("act_costs", {}), dict):
        raise _fault(folder, name, "has `act_costs` that are no object")
    temperature = config.get("temperature", [1, 1, 1])
    if not isinstance(temperature, list) or len(temperature) != 3:
        raise _fault(folder, name, "has a `temperature` that is no list of three")
    if not isinstance(config.get("temperature_by_options", {}), dict):
        raise _fault(folder, name, "has `temperature_by_options` that are no object")


def _json_object(folder: Path, name: str) -> dict[str, Any]:
    with _reading(folder, name):
        data = (folder / name).read_bytes()
    try:
        # Decoded as laya and transformers do: they read no other encoding, and no byte order mark.
        value = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as fault:
        raise _fault(folder, name, f"cannot be read as JSON ({type(fault).__name__})") from None
    if not isinstance(value, dict):
        raise _fault(folder, name, "is not a JSON object")
    return value


def _check_tokenizer(folder: Path) -> None:
    """Read a small tokenizer as JSON; of a large one (34 MB) look at both ends only."""
    name = "tokenizer/tokenizer.json"
    path = folder / name
    with _reading(folder, name):
        large = path.stat().st_size > 8_000_000
    if not large:
        tokenizer = _json_object(folder, name)
        for key, kind in (("model", dict), ("added_tokens", list)):
            if not isinstance(tokenizer.get(key), kind):
                raise _fault(folder, name, f"has no `{key}`")
        return
    with _reading(folder, name), path.open("rb") as file:
        start = file.read(64).lstrip()
        file.seek(-64, os.SEEK_END)
        end = file.read().rstrip()
    if not start.startswith(b"{") or not end.endswith(b"}"):
        raise _fault(folder, name, "is truncated")


def _check_weights(folder: Path) -> None:
    try:
        with _reading(folder, WEIGHTS):
            names = weights.tensor_names(folder / WEIGHTS)
    except weights.Damaged as damage:
        raise _fault(folder, WEIGHTS, str(damage)) from None
    for prefix in _REQUIRED_WEIGHTS:
        if not any(name.startswith(prefix) for name in names):
            raise _fault(folder, WEIGHTS, f"holds no `{prefix}*` weights: it is no Laya model")


def _fault(folder: Path, name: str, what: str) -> Refusal:
    return bad_configuration(f"checkpoint {folder}: the file {name} {what}")

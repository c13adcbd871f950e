"""What an artifact's manifest says, read as something that may have been written by anyone."""

import contextlib
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final

from omni_jev_worker.artifacts.key import Key

NAME: Final = "manifest.json"
"""The manifest's file."""

_FORMAT: Final = 1
_MOST_BYTES: Final = 256 * 1024


class Corrupt(Exception):
    """An artifact is not whole, or not what it says it is; the text completes "the artifact … "."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """The manifest's fields."""

    checkpoint: str
    """Its name on the machine where the artifact was made."""
    origin: str
    revision: str | None
    source: str
    """The hash of all its files."""
    weights_hash: str
    """The hash of its weights alone."""
    engine: str
    bucket: str
    precision: str
    length: int
    """The longest row, in tokens."""
    graph: str
    """The hash of the file that says what is computed."""
    tree: str
    """The hash of all files but this one: see `tree.tree_hash`."""
    platform: Mapping[str, str]
    """Where it was made: `machine.here`."""
    tools: Mapping[str, str]
    """What made it, with versions."""
    timings: Mapping[str, float]
    """Seconds of its making."""
    proof: Mapping[str, Any] | None = None
    """Where the parity gate ran last, with what, and what it found; none before that."""
    format: int = field(default=_FORMAT)

    @property
    def key(self) -> Key:
        """Which artifact it is."""
        return Key(self.source, self.engine, self.bucket, self.precision)

    def with_proof(self, proof: Mapping[str, Any]) -> "Manifest":
        """Give the same with what the parity gate found."""
        return replace(self, proof=proof)

    def write(self, folder: Path) -> None:
        """Put it into an artifact's folder, in place of the one that is there, at once."""
        handle, name = tempfile.mkstemp(dir=folder.parent, prefix=".manifest-")
        try:
            with os.fdopen(handle, "w") as file:
                json.dump(asdict(self), file, indent=1, sort_keys=True)
                file.write("\n")
            # As the files beside it, which other users may read.
            os.chmod(name, 0o644)
            os.replace(name, folder / NAME)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise


_KINDS: Final[Mapping[str, tuple[type, ...]]] = {
    **dict.fromkeys(("checkpoint", "origin", "source", "weights_hash", "engine"), (str,)),
    **dict.fromkeys(("bucket", "precision", "graph", "tree"), (str,)),
    "revision": (str, type(None)),
    "length": (int,),
    **dict.fromkeys(("platform", "tools", "timings"), (dict,)),
    "proof": (dict, type(None)),
    "format": (int,),
}


def read(folder: Path) -> Manifest:
    """Read an artifact's manifest. Raises `Corrupt`, and `OSError` where it cannot be read."""
    path = folder / NAME
    if path.is_symlink() or not path.is_file():
        raise Corrupt(f"has no {NAME}")
    with path.open("rb") as file:
        data = file.read(_MOST_BYTES + 1)
    return parse(data)


def parse(data: bytes) -> Manifest:
    """Read a manifest's bytes. Raises `Corrupt`."""
    if len(data) > _MOST_BYTES:
        raise Corrupt(f"has a {NAME} of over {_MOST_BYTES} bytes")
    try:
        found = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError):
        raise Corrupt(f"has a {NAME} that is no JSON") from None
    if not isinstance(found, dict) or found.get("format") != _FORMAT:
        raise Corrupt(f"has a {NAME} of another format than {_FORMAT}")
    known = {each.name for each in fields(Manifest)}
    if set(found) != known:
        raise Corrupt(f"has a {NAME} with other fields than it should have")
    for name, kinds in _KINDS.items():
        # Not isinstance: `true` is an int to Python.
        if type(found[name]) not in kinds:
            raise Corrupt(f"has a {NAME} whose `{name}` is of another type than it should be")
    for name in ("source", "weights_hash", "graph", "tree"):
        if not _is_hash(found[name]):
            raise Corrupt(f"has a {NAME} whose `{name}` is no hash")
    for name in ("engine", "bucket", "precision"):
        if not found[name].isalnum() or not found[name].isascii() or len(found[name]) > 16:
            raise Corrupt(f"has a {NAME} whose `{name}` is no name")
    return Manifest(**found)


def _is_hash(text: str) -> bool:
    return len(text) == 64 and set(text) <= set("0123456789abcdef")

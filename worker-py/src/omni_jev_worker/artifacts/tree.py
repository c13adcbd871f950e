"""The hash of a folder's files."""

import hashlib
import stat
from collections.abc import Collection
from pathlib import Path

from omni_jev_worker.artifacts.key import file_hash
from omni_jev_worker.artifacts.manifest import NAME, Corrupt


def check_members(folder: Path, members: Collection[str]) -> None:
    """Check that a folder holds these plain files and the manifest. Raises `Corrupt`."""
    expected = {*members, NAME}
    found = {each.name: each.lstat().st_mode for each in folder.iterdir()}
    if missing := sorted(expected - set(found)):
        raise Corrupt(f"lacks {missing[0]}")
    if set(found) - expected:
        raise Corrupt("holds a file that is none of its own")
    if others := sorted(name for name, mode in found.items() if not stat.S_ISREG(mode)):
        raise Corrupt(f"has a link or a folder as {others[0]}")


def tree_hash(folder: Path, members: Collection[str]) -> str:
    """Hash files: sha256 over their sorted names, each with its digest."""
    key = hashlib.sha256()
    for name in sorted(members):
        key.update(f"{name}\0{file_hash(folder / name)}\n".encode())
    return key.hexdigest()

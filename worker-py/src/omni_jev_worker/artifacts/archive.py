"""An artifact in one file, for another machine; and back from a file that anyone may have written.

The file is a zip archive of the artifact's own files, stored as they are. What comes in may hold
nothing else: no folders, links or other names, nothing compressed, and no more than `MOST_BYTES`.
It is put together aside, checked as every artifact is, and published by one rename. What it says of
a parity gate is dropped: that runs here before the artifact is used.
"""

import os
import stat
import struct
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from omni_jev_worker.artifacts import manifest as manifests
from omni_jev_worker.artifacts.manifest import NAME
from omni_jev_worker.artifacts.store import Artifact, Store, check
from omni_jev_worker.engines import known

MOST_BYTES: Final = 4_000_000_000
"""The most that an archive, or its files together, may be: below where zip needs its extension."""

_CHUNK: Final = 1024 * 1024
_MOST_MANIFEST: Final = 256 * 1024

# The end of the directory, without a comment: signature, six numbers, the comment's length.
_END: Final = struct.Struct("<4s4H2LH")
_END_SIGNATURE: Final = b"PK\5\6"
_MOST_DIRECTORY: Final = 4096

# Dates and modes are the same in every archive of an artifact.
_DATE: Final = (1980, 1, 1, 0, 0, 0)
_MODE: Final = (stat.S_IFREG | 0o644) << 16


class Hostile(Exception):
    """An archive that is not one of an artifact; the text completes "the archive … "."""


def export(artifact: Artifact, target: Path) -> None:
    """Write an artifact to a file that is not there yet. Raises `OSError`."""
    members = sorted(each.name for each in artifact.folder.iterdir())
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=".export-")
    begun = Path(name)
    try:
        with (
            os.fdopen(handle, "wb") as file,
            zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive,
        ):
            for name in members:
                info = zipfile.ZipInfo(name, _DATE)
                info.external_attr = _MODE
                info.file_size = (artifact.folder / name).stat().st_size
                with (artifact.folder / name).open("rb") as given, archive.open(info, "w") as out:
                    while part := given.read(_CHUNK):
                        out.write(part)
        begun.chmod(0o644)
        try:
            # Not `replace`: what is there is the user's.
            os.link(begun, target)
        except FileExistsError as fault:
            # Of the two names that is the one which was asked for.
            raise FileExistsError(fault.errno, fault.strerror, str(target)) from None
    finally:
        begun.unlink(missing_ok=True)


def bring_in(store: Store, source: Path) -> Artifact:
    """Publish the artifact of an archive, in place of one that is there.

    Raises `Hostile`, `Corrupt` and `OSError`.
    """
    with store.staged() as folder:
        _unpack(source, folder)
        found = manifests.read(folder)
        replace(found, proof=None).write(folder)
        check(folder)
        with store.locked(found.key):
            return store.publish(folder, found.key)


def _unpack(source: Path, folder: Path) -> None:
    _check_end(source)
    try:
        with zipfile.ZipFile(source) as archive:
            members = archive.infolist()
            _check(members)
            for member in members:
                _write(archive, member, folder / member.filename)
    except (zipfile.BadZipFile, NotImplementedError, ValueError, EOFError) as fault:
        raise Hostile(f"cannot be read ({type(fault).__name__})") from None


def _check_end(source: Path) -> None:
    """Check the size of an archive and of its directory, before anything is read into memory."""
    with source.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        if size > MOST_BYTES:
            raise Hostile(f"is larger than {MOST_BYTES} bytes")
        if size < _END.size:
            raise Hostile("is no zip archive")
        file.seek(-_END.size, os.SEEK_END)
        signature, *numbers, comment = _END.unpack(file.read(_END.size))
    if signature != _END_SIGNATURE or comment:
        raise Hostile("is no zip archive, or has something after its end")
    *_, entries, directory, _ = numbers
    if entries > 8 or directory > _MOST_DIRECTORY:
        raise Hostile("holds more files than an artifact has")


def _check(members: Sequence[zipfile.ZipInfo]) -> None:
    """Check the directory of an archive against what an artifact of some engine consists of."""
    names = [member.filename for member in members]
    allowed = {NAME, *(name for engine in known.all_engines() for name in engine.members)}
    if len(set(names)) != len(names) or not set(names) <= allowed:
        raise Hostile("holds a file that is no artifact's, or one twice")
    for member in members:
        # Where the directory is said to be elsewhere than it is.
        if member.header_offset < 0:
            raise Hostile(f"has {member.filename} before its own beginning")
        mode = member.external_attr >> 16
        if member.is_dir() or (mode and not stat.S_ISREG(mode)):
            raise Hostile(f"has a link or a folder as {member.filename}")
        if member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 0x1:
            raise Hostile(f"has {member.filename} compressed or encrypted")
        if member.file_size != member.compress_size:
            raise Hostile(f"has {member.filename} in two sizes")
    if sum(member.file_size for member in members) > MOST_BYTES:
        raise Hostile(f"holds more than {MOST_BYTES} bytes")
    if any(each.filename == NAME and each.file_size > _MOST_MANIFEST for each in members):
        raise Hostile(f"has a {NAME} of over {_MOST_MANIFEST} bytes")


def _write(archive: zipfile.ZipFile, member: zipfile.ZipInfo, target: Path) -> None:
    left = member.file_size
    with archive.open(member) as file, target.open("xb") as out:
        while part := file.read(min(_CHUNK, left + 1)):
            left -= len(part)
            if left < 0:
                raise Hostile(f"has more of {member.filename} than it says")
            out.write(part)
    if left:
        raise Hostile(f"has less of {member.filename} than it says")

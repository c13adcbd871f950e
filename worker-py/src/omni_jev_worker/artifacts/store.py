"""The folder of all artifacts: found, checked, published whole, set aside.

One artifact is changed by one process at a time, by a lock on a file beside its folder, which the
system lets go when that process ends. Readers need none: a folder appears by one rename. So a
store that may not be written is used without.
"""

import errno
import fcntl
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from filelock import FileLock, Timeout

from omni_jev_worker import log
from omni_jev_worker.artifacts import manifest as manifests
from omni_jev_worker.artifacts.key import Key
from omni_jev_worker.artifacts.manifest import Corrupt, Manifest
from omni_jev_worker.artifacts.tree import check_members, tree_hash
from omni_jev_worker.engines import known

STAGING: Final = ".staging-"
"""The beginning of the name of a folder that is not published yet."""

ASIDE: Final = ".corrupt-"
"""What stands between the name of a folder and that of one set aside."""

_DENIED: Final = {errno.EACCES, errno.EPERM, errno.EROFS}


@dataclass(frozen=True, slots=True)
class Artifact:
    """One that is there."""

    folder: Path
    manifest: Manifest


class Store:
    """A folder of artifacts."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def folder(self, key: Key) -> Path:
        """Say where an artifact is, or would be."""
        return self.root / key.folder

    @contextmanager
    def locked(self, key: Key) -> Iterator[None]:
        """Be the only process that changes an artifact; one that may not be is not locked.

        Raises `OSError`.
        """
        path = self.folder(key)
        with ExitStack() as held:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                held.enter_context(self.locked_folder(path))
            except OSError as fault:
                if not (may_not_write(fault) and path.is_dir()):
                    raise
                log.info(f"the artifact {key} is used as it is: it may not be written here")
            yield

    def find(self, key: Key) -> Artifact | None:
        """Give a checked artifact; none where there is none, or a corrupt one, which is set aside.

        Under its lock. Raises `Corrupt` for one that cannot be set aside.
        """
        folder = self.folder(key)
        if not folder.is_dir():
            return None
        try:
            found = check(folder)
            if found.key != key:
                raise Corrupt("says that it is another one")
        except (Corrupt, OSError) as fault:
            self._discard(folder, str(fault))
            return None
        # So that it can be told which were used lately.
        try:
            os.utime(folder)
        except OSError as denied:
            if not may_not_write(denied):
                raise
        return Artifact(folder, found)

    def _discard(self, folder: Path, reason: str) -> None:
        try:
            self.set_aside(folder, reason)
        except OSError as denied:
            if not may_not_write(denied):
                raise
            raise Corrupt(f"{reason}, and cannot be set aside ({denied.strerror})") from None

    @contextmanager
    def staged(self) -> Iterator[Path]:
        """Have a folder to put an artifact together in; what is left of it goes at the end."""
        self.root.mkdir(parents=True, exist_ok=True)
        with FileLock(self.root / ".staging.lock"):
            self._clear_away()
            folder = Path(tempfile.mkdtemp(prefix=STAGING, dir=self.root))
            mine = _take(folder)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            if mine is not None:
                os.close(mine)

    def _clear_away(self) -> None:
        """Remove what processes staged that have ended since: each may be as large as a model."""
        for folder in self.root.glob(f"{STAGING}*"):
            if (left := _take(folder)) is not None:
                shutil.rmtree(folder, ignore_errors=True)
                os.close(left)

    def publish(self, staged: Path, key: Key) -> Artifact:
        """Let a staged artifact be found, by one rename. Under its lock."""
        target = self.folder(key)
        # A link to nowhere is in the way too.
        if os.path.lexists(target):
            self.set_aside(target, "is replaced")
        staged.chmod(0o755)
        os.rename(staged, target)
        return Artifact(target, manifests.read(target))

    def set_aside(self, folder: Path, reason: str) -> Path:
        """Rename an artifact so that it is not used, and say so."""
        aside = folder.with_name(f"{folder.name}{ASIDE}{uuid.uuid4().hex[:8]}")
        os.rename(folder, aside)
        name = folder.relative_to(self.root)
        log.warning(f"the artifact {name} {reason}: it is set aside as {aside.name}")
        return aside

    def all(self) -> list[Path]:
        """Give the folders of the artifacts that are there, unchecked."""
        return [each for each in self._folders() if not each.name.startswith(".") and _whole(each)]

    def named(self, name: str) -> Path:
        """Give an artifact's folder by what `list` calls it. Raises `KeyError`."""
        return {str(each.relative_to(self.root)): each for each in self.all()}[name]

    @contextmanager
    def locked_folder(self, folder: Path) -> Iterator[None]:
        """Be the only process that changes the artifact of a folder."""
        lock = FileLock(f"{folder}.lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            name = folder.relative_to(self.root)
            log.info(f"another process is at the artifact {name}: waiting for it", phase="compile")
            lock.acquire()
        try:
            yield
        finally:
            lock.release()

    def leftovers(self) -> list[Path]:
        """Give the folders that are no artifacts: set aside, or staged by whoever is gone."""
        staged = [each for each in self.root.glob(f"{STAGING}*") if each.is_dir()]
        return staged + [each for each in self._folders() if not _whole(each)]

    def _folders(self) -> list[Path]:
        return sorted(each for each in self.root.glob("*/*") if each.is_dir() and _is_source(each))


def may_not_write(fault: OSError) -> bool:
    """Say whether what failed was a write that is not allowed, to this user or to anyone."""
    return fault.errno in _DENIED


def _take(folder: Path) -> int | None:
    """Have a folder for as long as the file descriptor is open; none where another process has it.

    The system lets it go when the process ends, however it ends.
    """
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        return None
    return handle


def _is_source(folder: Path) -> bool:
    return not folder.parent.name.startswith(".")


def _whole(folder: Path) -> bool:
    return ASIDE not in folder.name


def check(folder: Path) -> Manifest:
    """Check an artifact's files against its manifest and its engine.

    Raises `Corrupt`, `Unavailable` where the engine's packages are missing, and `OSError` where the
    files cannot be read.
    """
    found = manifests.read(folder)
    try:
        engine = known.find(found.engine)
    except KeyError:
        raise Corrupt("is for an engine that is not known here") from None
    engine.check()
    check_members(folder, engine.members)
    if tree_hash(folder, engine.members) != found.tree:
        raise Corrupt("has files of another hash than its manifest says")
    try:
        engine.inspect(folder)
    except ValueError as fault:
        raise Corrupt(f"cannot be used: {fault}") from None
    return found

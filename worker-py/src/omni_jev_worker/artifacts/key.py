"""Which artifact: of what checkpoint, for which engine, in which lengths and precision."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from omni_jev_worker.checkpoints import FILES

_SHOWN: Final = 16


@dataclass(frozen=True, slots=True)
class Key:
    """What tells one artifact from the others."""

    source: str
    """The hash of the checkpoint's files: see `source_hash`."""
    engine: str
    bucket: str
    """A length in tokens, or `engines.forward.ANY_LENGTH`."""
    weights: str
    """The precision, as ``--weights`` has it."""

    @property
    def folder(self) -> Path:
        """Where it is below the folder of all artifacts."""
        return Path(self.source[:_SHOWN]) / f"{self.engine}-{self.bucket}-{self.weights}"

    def __str__(self) -> str:
        """Give what a person calls it by."""
        return str(self.folder)


def source_hash(checkpoint: Path) -> str:
    """Hash a checkpoint's files, in their order: sha256 of the digests of each."""
    key = hashlib.sha256()
    for name in FILES:
        key.update(bytes.fromhex(file_hash(checkpoint / name)))
    return key.hexdigest()


def file_hash(path: Path) -> str:
    """Give the sha256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

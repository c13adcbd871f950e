"""The answers of full precision on the CPU to the parity rows, kept from one start to the next.

Computing them takes seconds at a published checkpoint's size. They are kept under a hash of all
that they depend on: the checkpoint's files, the rows as tokenized, and the versions of what
computed them.
"""

import contextlib
import hashlib
import os
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from omni_jev_worker import log
from omni_jev_worker.artifacts.key import source_hash
from omni_jev_worker.scores import Scores

if TYPE_CHECKING:
    # For the types alone: this module is imported before torch may be.
    from omni_jev_worker.model import Encoded


class KnownAnswers:
    """A folder of them, for one checkpoint."""

    def __init__(self, folder: Path, checkpoint: Path, versions: Mapping[str, str]) -> None:
        self._folder = folder
        self._checkpoint = checkpoint
        self._versions = versions
        self._hash: Future[str] | None = None

    def begin(self) -> Future[str]:
        """Read the checkpoint's files in a thread of its own, while other things are prepared."""
        thread = ThreadPoolExecutor(1, thread_name_prefix="hash")
        self._hash = thread.submit(source_hash, self._checkpoint)
        thread.shutdown(wait=False)
        return self._hash

    def read(self, rows: "Sequence[tuple[str, Encoded]]") -> list[Scores] | None:
        """Give the answers to rows; none where they are not known, or their file is damaged."""
        path = self._path(rows)
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as kept:
                return [Scores(kept[f"logits{row}"], kept[f"act{row}"]) for row in range(len(rows))]
        except FileNotFoundError:
            return None
        except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile) as fault:
            log.warning(f"the known answers to the parity rows are not readable: {fault}")
            return None

    def write(self, rows: "Sequence[tuple[str, Encoded]]", answers: Sequence[Scores]) -> None:
        """Keep the answers; where that fails, the next start computes them again."""
        numbers = {}
        for row, scores in enumerate(answers):
            numbers[f"logits{row}"], numbers[f"act{row}"] = scores.logits, scores.act
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=self._folder, suffix=".part")
            try:
                with os.fdopen(handle, "wb") as file:
                    np.savez(file, **numbers)  # type: ignore[arg-type]
                os.replace(name, self._path(rows))
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(name)
                raise
        except OSError as fault:
            log.warning(f"the answers to the parity rows cannot be kept: {fault}")

    def _path(self, rows: "Sequence[tuple[str, Encoded]]") -> Path:
        key = hashlib.sha256(self.checkpoint_hash().encode())
        for name, version in sorted(self._versions.items()):
            key.update(f"{name} {version}\n".encode())
        for _, encoded in rows:
            for item in encoded.items:
                key.update(repr((item["ids"], list(item["markers"]), item["qtype"])).encode())
        return self._folder / f"{key.hexdigest()}.npz"

    def checkpoint_hash(self) -> str:
        """Give the hash of the checkpoint's files, which are read once."""
        return (self._hash or self.begin()).result()

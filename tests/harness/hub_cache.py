"""A cache of the hub's client that holds the demo checkpoint under a published name."""

import shutil
from pathlib import Path

from tests.harness.omni_jev import DEMO_CHECKPOINT

_COMMIT = "55cf4c4" + "0" * 33


def make(cache: Path, *subfolders: str) -> Path:
    """Write a cache (`HF_HUB_CACHE`) with the checkpoint in subfolders of the repository.

    Without a subfolder it is the repository's own, the english one.
    """
    repository = cache / "models--convaiinnovations--laya"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(_COMMIT)
    for subfolder in subfolders or ("",):
        snapshot = repository / "snapshots" / _COMMIT / subfolder
        shutil.copytree(DEMO_CHECKPOINT, snapshot, dirs_exist_ok=True)
    return cache

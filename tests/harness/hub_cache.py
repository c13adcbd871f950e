"""A cache of the hub's client that holds the demo checkpoint under a published name."""

import shutil
from pathlib import Path

from tests.harness.omni_jev import DEMO_CHECKPOINT

_COMMIT = "55cf4c4" + "0" * 33


def make(cache: Path, subfolder: str = "") -> Path:
    """Write a cache (`HF_HUB_CACHE`) with the checkpoint in a subfolder of the repository."""
    repository = cache / "models--convaiinnovations--laya"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(_COMMIT)
    shutil.copytree(DEMO_CHECKPOINT, repository / "snapshots" / _COMMIT / subfolder)
    return cache

"""A tiny checkpoint for the whole run, and a worker on it."""

import os

# As the worker itself does before torch: the machine that runs the tests is busy.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

from collections.abc import Iterator
from pathlib import Path

import pytest

import tiny_checkpoint
from running_worker import RunningWorker


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a small random checkpoint."""
    return tiny_checkpoint.make(tmp_path_factory.mktemp("checkpoint") / "tiny")


@pytest.fixture(scope="session")
def worker(tiny: Path) -> Iterator[RunningWorker]:
    """A real worker process on the tiny checkpoint, ready."""
    with RunningWorker(["--model", str(tiny)]) as running:
        yield running

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
from running_worker import Kept, RunningWorker


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a small random checkpoint."""
    return tiny_checkpoint.make(tmp_path_factory.mktemp("checkpoint") / "tiny")


@pytest.fixture(scope="session")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of one with smaller weights, which few bits hold well enough."""
    folder = tmp_path_factory.mktemp("checkpoint") / "calm"
    return tiny_checkpoint.make(folder, encoder={"initializer_range": 0.1})


@pytest.fixture(scope="session")
def kept(tiny: Path) -> Iterator[Kept]:
    """A real worker process on the tiny checkpoint, for the whole run."""
    with Kept(lambda: RunningWorker(["--model", str(tiny)])) as kept:
        yield kept


@pytest.fixture
def worker(kept: Kept) -> RunningWorker:
    """That worker, ready."""
    return kept.running()

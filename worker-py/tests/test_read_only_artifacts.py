"""A store that this user may read and not write, as an image's or another user's: used as it is."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from artifacts_of import adopting, built, key_of
from omni_jev_worker.artifacts import manifest as manifests
from omni_jev_worker.artifacts.store import Artifact, Store
from omni_jev_worker.exits import BAD_CONFIGURATION, Refusal
from omni_jev_worker.model import Model
from omni_jev_worker.tuner import TuningState

NOBODY = 65534


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "artifacts")


@pytest.fixture
def readable(tiny: Path, tmp_path: Path) -> Path:
    """The tiny checkpoint where another user may read it."""
    folder = Path(shutil.copytree(tiny, tmp_path / "tiny"))
    for each in folder.rglob("*"):
        each.chmod(each.stat().st_mode | 0o055)
    return folder


@contextmanager
def read_only(root: Path) -> Iterator[None]:
    """Take from this user what is needed to write there; root is made another one for that."""
    folders = [root, *(each for each in root.rglob("*") if each.is_dir())]
    # Pytest's own folders are for their owner alone.
    above = [each for each in root.parents if each.stat().st_uid == os.geteuid()]
    opened = [(each, each.stat().st_mode & 0o777) for each in above]
    mine = os.geteuid()
    for each, mode in opened:
        each.chmod(mode | 0o055)
    for each in folders:
        each.chmod(0o555)
    if mine == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if mine == 0:
            os.seteuid(0)
        for each in folders:
            each.chmod(0o755)
        for each, mode in opened:
            each.chmod(mode)


def adopt(readable: Path, store: Store) -> TuningState:
    adoption = adopting(readable, store)
    model = Model(adoption.checkpoint, "cpu")
    with read_only(store.root):
        return adoption.apply(model)


def test_a_proved_artifact_runs_and_the_log_says_that_it_is_not_locked(
    readable: Path, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    adoption = adopting(readable, store)
    adoption.apply(Model(adoption.checkpoint, "cpu"))
    before = manifests.read(store.folder(key_of(readable)))
    assert before.proof is not None
    caplog.set_level("INFO", logger="omni_jev_worker")
    assert not adopt(readable, store).is_less
    assert manifests.read(store.folder(key_of(readable))) == before
    assert "may not be written" in caplog.text


def test_what_the_gate_finds_of_an_unproved_one_counts_though_it_cannot_be_kept(
    readable: Path, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    built(readable, store)
    state = adopt(readable, store)
    assert not state.is_less
    assert state.parity is not None
    assert state.parity.fault is None
    assert manifests.read(store.folder(key_of(readable))).proof is None
    assert "the next start compares again" in caplog.text


def test_a_store_without_the_artifact_is_refused_with_the_reason(
    readable: Path, store: Store
) -> None:
    store.root.mkdir()
    with pytest.raises(Refusal, match=r"--artifacts .* cannot be used \(.*denied") as caught:
        adopt(readable, store)
    assert caught.value.code == BAD_CONFIGURATION


def test_a_corrupt_artifact_that_cannot_be_set_aside_is_refused_with_both_reasons(
    readable: Path, store: Store
) -> None:
    made: Artifact = built(readable, store)
    (made.folder / "model.onnx").write_bytes(b"")
    with pytest.raises(Refusal, match=r"has files of another hash.*cannot be set aside") as caught:
        adopt(readable, store)
    assert caught.value.code == BAD_CONFIGURATION
    assert made.folder.is_dir()

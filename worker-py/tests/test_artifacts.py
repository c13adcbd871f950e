"""Artifacts on disk: made once, checked, published whole, and set aside where they are not."""

import json
import multiprocessing
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from artifacts_of import adopting, built, key_of
from omni_jev_worker.artifacts import machine, manifest
from omni_jev_worker.artifacts.key import Key, source_hash
from omni_jev_worker.artifacts.manifest import NAME, Corrupt, Manifest
from omni_jev_worker.artifacts.store import Artifact, Store, check
from omni_jev_worker.model import Model
from omni_jev_worker.tuning import FP32

LONG = 180.0


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "artifacts")


@pytest.fixture
def made(tiny: Path, store: Store) -> Artifact:
    return built(tiny, store)


def test_the_manifest_says_of_what_by_what_and_where_an_artifact_was_made(
    tiny: Path, made: Artifact
) -> None:
    found = made.manifest
    assert (found.engine, found.bucket, found.precision) == ("onnx", "any", "fp32")
    assert found.source == source_hash(tiny)
    assert (found.checkpoint, found.origin, found.length) == ("tiny", "tiny", 128)
    assert found.platform == machine.here()
    assert set(found.tools) == {"onnx", "onnxruntime", "omni-jev-worker"}
    assert found.timings["build"] > 0
    assert found.proof is None
    assert check(made.folder) == found


def test_another_checkpoint_has_another_artifact(tiny: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    for file in tiny.rglob("*"):
        target = other / file.relative_to(tiny)
        target.parent.mkdir(parents=True, exist_ok=True)
        if file.is_file():
            target.write_bytes(file.read_bytes())
    assert key_of(tiny) == key_of(other)
    config = other / "rl_agent_config.json"
    config.write_text(config.read_text() + "\n")
    assert key_of(tiny).folder != key_of(other).folder


def damage_numbers(folder: Path) -> None:
    data = bytearray((folder / "weights.bin").read_bytes())
    data[len(data) // 2] ^= 1
    (folder / "weights.bin").write_bytes(data)


def truncate(folder: Path) -> None:
    os.truncate(folder / "weights.bin", 100)


def take_away(folder: Path) -> None:
    (folder / "model.onnx").unlink()


def add(folder: Path) -> None:
    (folder / "more.so").write_bytes(b"")


def link(folder: Path) -> None:
    data = folder / "model.onnx"
    data.rename(folder.parent / "elsewhere")
    data.symlink_to(folder.parent / "elsewhere")


def no_manifest(folder: Path) -> None:
    (folder / NAME).unlink()


def another_key(folder: Path) -> None:
    found = json.loads((folder / NAME).read_text())
    (folder / NAME).write_text(json.dumps(found | {"precision": "int8"}))


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (damage_numbers, "has files of another hash"),
        (truncate, "has files of another hash"),
        (take_away, "lacks model.onnx"),
        (add, "holds a file that is none of its own"),
        (link, "has a link or a folder as model.onnx"),
        (no_manifest, "has no manifest.json"),
        (another_key, "says that it is another one"),
    ],
)
def test_a_corrupt_artifact_is_set_aside_and_told_of(
    tiny: Path,
    store: Store,
    made: Artifact,
    damage: Callable[[Path], None],
    reason: str,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    damage(made.folder)
    assert store.find(key_of(tiny)) is None
    assert not made.folder.exists()
    (aside,) = store.leftovers()
    assert ".corrupt-" in aside.name
    assert store.all() == []
    told = caplog.text + capsys.readouterr().err
    assert reason in told
    assert aside.name in told


def test_a_worker_builds_anew_what_is_corrupt(tiny: Path, store: Store, made: Artifact) -> None:
    damage_numbers(made.folder)
    adoption = adopting(tiny, store)
    state = adoption.apply(Model(adoption.checkpoint, "cpu"))
    assert not state.is_less
    assert check(made.folder).proof is not None


def _adopt(folder: Path, root: Path, begin: Any, told: Any) -> None:
    adoption = adopting(folder, Store(root))
    model = Model(adoption.checkpoint, "cpu")
    export, builds = model.export, []

    def counting(write: Any) -> None:
        builds.append(write)
        export(write)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model, "export", counting)
        begin.wait(LONG)
        state = adoption.apply(model)
    told.put((len(builds), state.is_less))


def test_of_two_that_start_at_once_one_builds_and_both_run(tiny: Path, store: Store) -> None:
    spawn = multiprocessing.get_context("spawn")
    begin, told = spawn.Barrier(2), spawn.Queue()
    both = [spawn.Process(target=_adopt, args=(tiny, store.root, begin, told)) for _ in range(2)]
    for process in both:
        process.start()
    found = sorted(told.get(timeout=LONG) for _ in both)
    for process in both:
        process.join(LONG)
        assert process.exitcode == 0
    assert found == [(0, False), (1, False)]
    assert store.leftovers() == []
    assert len(store.all()) == 1


def _stage(root: Path, told: Any) -> None:
    with Store(root).staged() as folder:
        (folder / "weights.bin").write_bytes(b"much")
        told.put(folder.name)
        time.sleep(LONG)


def test_what_a_killed_process_staged_is_removed_by_the_next_and_a_living_ones_stays(
    store: Store,
) -> None:
    spawn = multiprocessing.get_context("spawn")
    told = spawn.Queue()
    killed = spawn.Process(target=_stage, args=(store.root, told), daemon=True)
    living = spawn.Process(target=_stage, args=(store.root, told), daemon=True)
    killed.start()
    left = told.get(timeout=LONG)
    living.start()
    kept = told.get(timeout=LONG)
    assert {each.name for each in store.leftovers()} == {left, kept}
    killed.kill()
    killed.join(LONG)
    with store.staged() as folder:
        assert {each.name for each in store.leftovers()} == {kept, folder.name}
    living.kill()
    living.join(LONG)


def test_whoever_waits_for_another_process_says_so(
    tiny: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = threading.Event()
    told: list[str] = []

    def tell(message: str, **_: Any) -> None:
        told.append(message)
        waits.set()

    monkeypatch.setattr("omni_jev_worker.log.info", tell)

    def second() -> None:
        with store.locked(key_of(tiny)):
            pass

    thread = threading.Thread(target=second)
    with store.locked(key_of(tiny)):
        thread.start()
        assert waits.wait(LONG)
    thread.join(LONG)
    assert not thread.is_alive()
    name = store.folder(key_of(tiny)).relative_to(store.root)
    assert told == [f"another process is at the artifact {name}: waiting for it"]


def test_a_link_to_nowhere_in_an_artifacts_place_is_set_aside(tiny: Path, store: Store) -> None:
    folder = store.folder(key_of(tiny))
    folder.parent.mkdir(parents=True)
    folder.symlink_to(folder / "nowhere")
    assert check(built(tiny, store).folder).source == source_hash(tiny)


def test_every_file_of_an_artifact_is_as_readable_as_the_others(made: Artifact) -> None:
    modes = {each.stat().st_mode & 0o444 for each in made.folder.iterdir()}
    assert modes == {0o444}


def test_a_manifest_that_cannot_be_written_leaves_nothing(
    made: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(json, "dump", full)
    before = sorted(made.folder.parent.iterdir())
    with pytest.raises(OSError, match="No space left"):
        made.manifest.write(made.folder)
    assert sorted(made.folder.parent.iterdir()) == before
    assert check(made.folder) == made.manifest


def test_a_build_that_fails_leaves_nothing_that_could_be_found(
    tiny: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("omni_jev_worker.artifacts.build._manifest", fail)
    with pytest.raises(OSError, match="No space left"):
        built(tiny, store)
    assert store.all() == store.leftovers() == []


def valid() -> dict[str, Any]:
    digest = "0" * 64
    return {
        "checkpoint": "c",
        "origin": "o",
        "revision": None,
        "engine": "onnx",
        "bucket": "any",
        "source": digest,
        "weights_hash": digest,
        "graph": digest,
        "tree": digest,
        "precision": FP32,
        "length": 128,
        "platform": {},
        "tools": {},
        "timings": {},
        "proof": None,
        "format": 1,
    }


def test_a_valid_manifest_is_read() -> None:
    found = manifest.parse(json.dumps(valid()).encode())
    assert isinstance(found, Manifest)
    assert found.key == Key("0" * 64, "onnx", "any", "fp32")


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("format", 2, "another format"),
        ("engine", "../up", "`engine` is no name"),
        ("bucket", "", "`bucket` is no name"),
        ("precision", "a/b", "`precision` is no name"),
        ("source", "../../etc", "`source` is no hash"),
        ("tree", "F" * 64, "`tree` is no hash"),
        ("length", True, "`length` is of another type"),
        ("tools", [], "`tools` is of another type"),
        ("more", 1, "other fields"),
    ],
)
def test_a_manifest_that_could_lead_elsewhere_is_refused(
    field: str, value: Any, reason: str
) -> None:
    with pytest.raises(Corrupt, match=reason):
        manifest.parse(json.dumps(valid() | {field: value}).encode())


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=6,
)


@given(st.binary(max_size=200) | st.dictionaries(st.sampled_from(sorted(valid())), _JSON))
def test_whatever_a_manifest_holds_it_is_read_or_refused(given: bytes | dict[str, Any]) -> None:
    data = given if isinstance(given, bytes) else json.dumps(valid() | given).encode()
    try:
        found = manifest.parse(data)
    except Corrupt:
        return
    # What names its folder cannot lead out of it.
    assert len(found.key.folder.parts) == 2
    assert all(part.replace("-", "").isalnum() for part in found.key.folder.parts)

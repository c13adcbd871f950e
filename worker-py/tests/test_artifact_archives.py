"""Artifacts from elsewhere: moved in a file, fetched at a pin, refused where they are hostile."""

import hashlib
import io
import json
import stat
import struct
import zipfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from artifacts_of import adopting, built, key_of
from omni_jev_worker.artifacts import archive, fetch, manifest
from omni_jev_worker.artifacts.archive import Hostile, bring_in, export
from omni_jev_worker.artifacts.fetch import CannotFetch
from omni_jev_worker.artifacts.manifest import Corrupt
from omni_jev_worker.artifacts.store import Artifact, Store
from omni_jev_worker.model import Model

Files = dict[str, bytes]


@pytest.fixture(scope="module")
def proved(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    """An artifact that has passed the gate."""
    store = Store(tmp_path_factory.mktemp("proved"))
    adoption = adopting(tiny, store)
    adoption.apply(Model(adoption.checkpoint, "cpu"))
    folder = store.folder(key_of(tiny))
    return Artifact(folder, manifest.read(folder))


@pytest.fixture(scope="module")
def good(proved: Artifact, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Its archive."""
    path = tmp_path_factory.mktemp("archive") / "good.zip"
    export(proved, path)
    return path.read_bytes()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "artifacts")


def files_of(data: bytes) -> Files:
    with zipfile.ZipFile(io.BytesIO(data)) as opened:
        return {name: opened.read(name) for name in opened.namelist()}


def zipped(files: Mapping[str, bytes], **options: Any) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", options.get("compression", zipfile.ZIP_STORED)) as opened:
        for name, data in files.items():
            info = zipfile.ZipInfo(name)
            info.external_attr = options.get("mode", stat.S_IFREG | 0o644) << 16
            info.compress_type = options.get("compression", zipfile.ZIP_STORED)
            opened.writestr(info, data)
    return out.getvalue()


def bring(store: Store, tmp_path: Path, data: bytes) -> Artifact:
    path = tmp_path / "given.zip"
    path.write_bytes(data)
    return bring_in(store, path)


def nothing_was_published(store: Store, tmp_path: Path) -> bool:
    """Say so; and that nothing was written anywhere else."""
    beside = {each.name for each in tmp_path.iterdir()}
    return store.all() == store.leftovers() == [] and beside <= {"artifacts", "given.zip"}


def test_an_artifact_comes_back_from_its_archive_to_be_proved_again(
    tiny: Path, store: Store, tmp_path: Path, proved: Artifact, good: bytes
) -> None:
    found = bring(store, tmp_path, good)
    assert found.folder == store.folder(key_of(tiny))
    assert proved.manifest.proof is not None
    # Anyone can write that it was proved.
    assert found.manifest.proof is None
    assert found.manifest.tree == proved.manifest.tree
    adoption = adopting(tiny, store)
    assert not adoption.apply(Model(adoption.checkpoint, "cpu")).is_less
    assert manifest.read(found.folder).proof is not None


def test_an_import_replaces_what_is_there_and_keeps_it_aside(
    tiny: Path, store: Store, tmp_path: Path, good: bytes
) -> None:
    built(tiny, store)
    bring(store, tmp_path, good)
    assert len(store.all()) == len(store.leftovers()) == 1


def test_an_export_overwrites_nothing_and_leaves_nothing_behind(
    proved: Artifact, tmp_path: Path
) -> None:
    (tmp_path / "x.zip").write_text("mine")
    with pytest.raises(FileExistsError) as caught:
        export(proved, tmp_path / "x.zip")
    assert caught.value.filename == str(tmp_path / "x.zip")
    assert [each.name for each in tmp_path.iterdir()] == ["x.zip"]
    assert (tmp_path / "x.zip").read_text() == "mine"


@pytest.mark.parametrize(
    "name",
    ["/etc/passwd", "../up", "a/model.onnx", "model.onnx/", "./model.onnx", "C:\\x", "more.so", ""],
)
def test_a_name_that_is_no_artifacts_is_refused(
    store: Store, tmp_path: Path, good: bytes, name: str
) -> None:
    with pytest.raises(Hostile):
        bring(store, tmp_path, zipped(files_of(good) | {name: b"x"}))
    assert nothing_was_published(store, tmp_path)


def test_a_link_is_refused(store: Store, tmp_path: Path, good: bytes) -> None:
    with pytest.raises(Hostile, match="has a link or a folder"):
        bring(store, tmp_path, zipped(files_of(good), mode=stat.S_IFLNK | 0o777))
    assert nothing_was_published(store, tmp_path)


def test_what_could_unfold_to_much_is_refused(store: Store, tmp_path: Path, good: bytes) -> None:
    with pytest.raises(Hostile, match="compressed or encrypted"):
        bring(store, tmp_path, zipped(files_of(good), compression=zipfile.ZIP_DEFLATED))
    assert nothing_was_published(store, tmp_path)


def test_a_file_that_is_there_twice_is_refused(store: Store, tmp_path: Path, good: bytes) -> None:
    out = io.BytesIO(good)
    with (
        zipfile.ZipFile(out, "a") as opened,
        pytest.warns(UserWarning, match="Duplicate name"),
    ):
        opened.writestr("model.onnx", b"another")
    with pytest.raises(Hostile, match="or one twice"):
        bring(store, tmp_path, out.getvalue())
    assert nothing_was_published(store, tmp_path)


def test_an_archive_over_the_cap_is_refused_unread(
    store: Store, tmp_path: Path, good: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "MOST_BYTES", len(good) - 1)
    monkeypatch.setattr(zipfile, "ZipFile", None)
    with pytest.raises(Hostile, match="is larger than"):
        bring(store, tmp_path, good)


def test_a_directory_of_many_files_is_refused_unread(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = zipped({str(number): b"" for number in range(1000)})
    monkeypatch.setattr(zipfile, "ZipFile", None)
    with pytest.raises(Hostile, match="more files than an artifact has"):
        bring(store, tmp_path, data)


def test_a_size_that_is_a_lie_is_refused(store: Store, tmp_path: Path, good: bytes) -> None:
    files = files_of(good)
    data = bytearray(zipped(files))
    at = data.index(b"PK\1\2")
    struct.pack_into("<LL", data, at + 20, 2**31, 2**31)
    with pytest.raises((Hostile, Corrupt)):
        bring(store, tmp_path, bytes(data))
    assert nothing_was_published(store, tmp_path)


@pytest.mark.parametrize("data", [b"", b"no archive at all" * 10, b"PK\5\6" + bytes(18)])
def test_what_is_no_archive_is_refused(store: Store, tmp_path: Path, data: bytes) -> None:
    with pytest.raises((Hostile, Corrupt)):
        bring(store, tmp_path, data)
    assert nothing_was_published(store, tmp_path)


def with_manifest(files: Files, **fields: Any) -> Files:
    found = json.loads(files["manifest.json"]) | fields
    return files | {"manifest.json": json.dumps(found).encode()}


def with_graph(files: Files, graph: bytes) -> Files:
    """Give an archive that is true to itself: its hashes are those of what it holds."""
    key = hashlib.sha256()
    changed = files | {"model.onnx": graph}
    for name in sorted(set(changed) - {"manifest.json"}):
        key.update(f"{name}\0{hashlib.sha256(changed[name]).hexdigest()}\n".encode())
    return with_manifest(changed, tree=key.hexdigest())


def changed_graph(files: Files, change: Callable[[Any], None]) -> Files:
    import onnx

    model = onnx.load_from_string(files["model.onnx"])
    change(model)
    return with_graph(files, model.SerializeToString())


def other_operator(model: Any) -> None:
    model.graph.node[0].op_type = "If"


def other_domain(model: Any) -> None:
    model.graph.node[0].domain = "ai.onnx.contrib"


def other_file(model: Any) -> None:
    external = next(each for each in model.graph.initializer if each.external_data)
    external.external_data[0].value = "../../../etc/passwd"


def past_the_end(model: Any) -> None:
    external = next(each for each in model.graph.initializer if each.external_data)
    external.external_data[1].value = str(2**40)


def a_function(model: Any) -> None:
    model.functions.add().name = "more"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (other_operator, "a node of a kind that is not known"),
        (other_domain, "a node of a kind that is not known"),
        (other_file, "reads numbers from elsewhere"),
        (past_the_end, "is shorter than"),
        (a_function, "more than a graph"),
    ],
)
def test_a_graph_that_does_more_than_compute_is_refused_whatever_its_hashes_say(
    store: Store, tmp_path: Path, good: bytes, change: Callable[[Any], None], reason: str
) -> None:
    with pytest.raises(Corrupt, match=reason):
        bring(store, tmp_path, zipped(changed_graph(files_of(good), change)))
    assert nothing_was_published(store, tmp_path)


def test_an_archive_whose_directory_is_said_to_be_elsewhere_is_refused(
    store: Store, tmp_path: Path, good: bytes
) -> None:
    data = bytearray(good)
    # The last number of the end's record but the comment's length: where the directory begins.
    where = int.from_bytes(data[-6:-2], "little")
    data[-6:-2] = (where + 1000).to_bytes(4, "little")
    with pytest.raises(Hostile, match="before its own beginning"):
        bring(store, tmp_path, bytes(data))
    assert nothing_was_published(store, tmp_path)


def test_a_graph_that_is_none_is_refused(store: Store, tmp_path: Path, good: bytes) -> None:
    with pytest.raises(Corrupt, match="cannot be read"):
        bring(store, tmp_path, zipped(with_graph(files_of(good), b"\xff" * 100)))


@pytest.mark.parametrize(
    "fields",
    [{"source": "../../../tmp"}, {"engine": "torch"}, {"bucket": "../x"}, {"tree": "0" * 64}],
)
def test_a_manifest_that_is_not_of_these_files_is_refused(
    store: Store, tmp_path: Path, good: bytes, fields: dict[str, str]
) -> None:
    with pytest.raises(Corrupt):
        bring(store, tmp_path, zipped(with_manifest(files_of(good), **fields)))
    assert nothing_was_published(store, tmp_path)


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(at=st.floats(0, 1, exclude_max=True), value=st.integers(0, 255), cut=st.floats(0, 1))
@example(at=0.5, value=0, cut=0.5)
def test_whatever_is_changed_in_an_archive_nothing_else_than_it_held_is_published(
    tmp_path_factory: pytest.TempPathFactory,
    proved: Artifact,
    good: bytes,
    at: float,
    value: int,
    cut: float,
) -> None:
    folder = tmp_path_factory.mktemp("changed")
    store = Store(folder / "artifacts")
    data = bytearray(good)
    data[int(at * len(data))] = value
    if cut < 0.2:
        data = data[: int(len(data) * cut * 5)]
    try:
        found = bring(store, folder, bytes(data))
    except (Hostile, Corrupt):
        assert nothing_was_published(store, folder)
    else:
        assert found.manifest.tree == proved.manifest.tree


def served(answers: Mapping[str, httpx2.Response]) -> Callable[..., httpx2.Client]:
    """A client whose addresses answer so, and no other."""

    def answer(request: httpx2.Request) -> httpx2.Response:
        return answers[str(request.url)]

    return partial(httpx2.Client, transport=httpx2.MockTransport(answer))


def giving(data: bytes) -> httpx2.Response:
    """Not as `content`, which would be there before it is read."""
    return httpx2.Response(200, stream=httpx2.ByteStream(data))


def moved(where: str) -> httpx2.Response:
    return httpx2.Response(302, headers={"location": where})


def test_an_archive_is_fetched_from_an_address_whose_hash_is_known(
    tmp_path: Path, good: bytes
) -> None:
    client = served({"https://a/x": moved("https://b/y"), "https://b/y": giving(good)})
    fetch.from_url("https://a/x", hashlib.sha256(good).hexdigest(), tmp_path / "x", client)
    assert (tmp_path / "x").read_bytes() == good


@pytest.mark.parametrize(
    ("url", "sha256", "reason"),
    [
        ("http://a/x", "0" * 64, "http://a/x is no https:// address"),
        ("https://a/x", "0" * 64, "its sha256 is"),
        ("https://a/x", "main", "64 hexadecimal digits"),
        ("https://a/plain", "0" * 64, "http://b/y is no https:// address"),
        ("https://a/round", "0" * 64, "leads on more than"),
        ("https://me:secret@a/gone?token=secret", "0" * 64, "https://a/gone answers 404"),
    ],
)
def test_an_address_without_a_pin_or_with_another_file_is_refused(
    tmp_path: Path, url: str, sha256: str, reason: str
) -> None:
    client = served(
        {
            "https://a/x": giving(b"another"),
            "https://a/plain": moved("http://b/y"),
            "https://a/round": moved("https://a/round"),
            "https://me:secret@a/gone?token=secret": httpx2.Response(404),
        }
    )
    with pytest.raises(CannotFetch, match=reason) as caught:
        fetch.from_url(url, sha256, tmp_path / "x", client)
    assert "secret" not in str(caught.value)


def test_an_address_that_gives_too_much_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "MOST_BYTES", 10)
    client = served({"https://a/x": giving(b"x" * 11)})
    with pytest.raises(CannotFetch, match="larger than 10 bytes"):
        fetch.from_url("https://a/x", "0" * 64, tmp_path / "x", client)


def test_a_hub_repository_is_asked_at_a_commit_alone(tmp_path: Path) -> None:
    asked = []

    def download(repository: str, file: str, *, revision: str) -> str:
        asked.append((repository, file, revision))
        (tmp_path / "x").write_bytes(b"data")
        return str(tmp_path / "x")

    commit = "0123456789" * 4
    assert fetch.from_hub("me/them", "x.zip", commit, None, download) == tmp_path / "x"
    assert asked == [("me/them", "x.zip", commit)]
    for name in ("main", "v1", commit[:7]):
        with pytest.raises(CannotFetch, match="a name can move"):
            fetch.from_hub("me/them", "x.zip", name, None, download)
    with pytest.raises(CannotFetch, match="its sha256 is"):
        fetch.from_hub("me/them", "x.zip", commit, "0" * 64, download)


def test_a_hub_that_cannot_be_reached_is_told_of_without_its_clients_words() -> None:
    def download(*_: Any, **__: Any) -> str:
        raise OSError("secret")

    with pytest.raises(CannotFetch, match=r"x.zip of me/them at 0+ cannot be had \(OSError\)"):
        fetch.from_hub("me/them", "x.zip", "0" * 40, None, download)

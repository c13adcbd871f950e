"""Hub checkpoints: from the cache without network, or one line that says what could not be had."""

import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from omni_jev_worker import hub
from omni_jev_worker.exits import BAD_CONFIGURATION, Refusal

COMMIT = "55cf4c4" + "0" * 33
OTHER = "aaaaaaa" + "0" * 33


@pytest.fixture
def cache(tiny: Path, tmp_path: Path) -> Path:
    """A hub cache with the english checkpoint at one commit, which is `main`."""
    repository = tmp_path / "hub" / "models--convaiinnovations--laya"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(COMMIT)
    shutil.copytree(tiny, repository / "snapshots" / COMMIT)
    shutil.copytree(tiny, repository / "snapshots" / OTHER / "multilingual")
    return tmp_path / "hub"


def variables(cache: Path) -> Mapping[str, str]:
    return {"HF_HUB_CACHE": str(cache)}


def test_a_cached_checkpoint_starts_without_network(cache: Path) -> None:
    found = hub.get("english", None, variables(cache))
    assert found.origin == "convaiinnovations/laya"
    assert found.revision == COMMIT
    assert (found.folder / "model.safetensors").is_file()


def test_a_pinned_revision_is_taken_from_the_cache(cache: Path) -> None:
    found = hub.get("multilingual", OTHER, variables(cache))
    assert found.origin == "convaiinnovations/laya/multilingual"
    assert found.revision == OTHER
    assert found.folder.name == "multilingual"


@pytest.mark.parametrize(
    ("name", "revision"), [("typed-decisions", None), ("english", "no-such-tag")]
)
def test_what_cannot_be_had_names_repository_and_revision(
    cache: Path, monkeypatch: pytest.MonkeyPatch, name: str, revision: str | None
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(Refusal) as caught:
        hub.get(name, revision, variables(cache))
    message = str(caught.value)
    assert caught.value.code == BAD_CONFIGURATION
    assert "convaiinnovations/laya" in message
    assert (revision or "main") in message
    assert "HF_HUB_OFFLINE is set" in message
    assert "\n" not in message


def test_an_incomplete_cache_is_not_taken_for_a_checkpoint(cache: Path) -> None:
    snapshot = cache / "models--convaiinnovations--laya" / "snapshots" / COMMIT
    (snapshot / "model.safetensors").unlink()
    with pytest.raises(Refusal, match="convaiinnovations/laya at revision main"):
        hub.get("english", None, variables(cache))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"HF_HUB_CACHE": "/a"}, "/a"),
        ({"HF_HOME": "/b"}, "/b/hub"),
        ({"XDG_CACHE_HOME": "/c"}, "/c/huggingface/hub"),
        ({"HF_HOME": "/b", "HF_HUB_CACHE": "/a"}, "/a"),
    ],
)
def test_the_cache_is_where_the_hubs_own_client_looks(
    given: Mapping[str, str], expected: str
) -> None:
    assert hub.cache_folder(given) == Path(expected)

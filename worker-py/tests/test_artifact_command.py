"""``python -m omni_jev_worker artifacts``: as a person types it."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from artifacts_of import built, key_of
from omni_jev_worker.artifacts.store import Store
from running_worker import run


def artifacts(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    action, *rest = words
    return run(["artifacts", action, *rest, "--artifacts", str(root)])


def last_error(ended: subprocess.CompletedProcess[str]) -> str:
    line = json.loads(ended.stderr.strip().splitlines()[-1])
    assert line["level"] == "error"
    return str(line["message"])


def test_one_is_built_listed_moved_to_another_place_and_warmed_there(
    tiny: Path, tmp_path: Path
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    model = ["--model", str(tiny), "--engine", "onnx"]
    made = artifacts(here, "build", *model)
    assert (made.returncode, made.stdout.splitlines()[-2]) == (
        0,
        "asked for: --engine onnx; runs with: --engine onnx",
    )
    name = str(key_of(tiny))
    listed = artifacts(here, "list")
    assert listed.returncode == 0
    assert listed.stdout.startswith(f"{name}  tiny  ")
    assert listed.stdout.endswith("  proved\n")
    assert artifacts(here, "verify").stdout == f"{name}  whole\n"
    archive = str(tmp_path / "tiny.zip")
    assert artifacts(here, "export", name, archive).returncode == 0
    assert artifacts(there, "import", archive).returncode == 0
    assert artifacts(there, "list").stdout.endswith("  not proved\n")
    warmed = artifacts(there, "warm", *model)
    assert warmed.returncode == 0
    assert warmed.stdout.splitlines()[-1].startswith("warmed up in ")
    assert '"phase": "compile"' not in warmed.stderr
    assert artifacts(there, "list").stdout.endswith("  proved\n")


def test_a_corrupt_one_is_found_set_aside_and_pruned(tiny: Path, tmp_path: Path) -> None:
    made = built(tiny, Store(tmp_path / "store"))
    (made.folder / "weights.bin").write_bytes(b"")
    found = artifacts(tmp_path / "store", "verify")
    assert found.returncode == 78
    assert str(key_of(tiny)) in last_error(found)
    assert "has files of another hash" in found.stdout
    assert artifacts(tmp_path / "store", "list").stdout.endswith("  left over\n")
    assert artifacts(tmp_path / "store", "prune").stdout.startswith("removed ")
    assert artifacts(tmp_path / "store", "list").stdout == ""


def test_pruning_keeps_what_has_been_used_lately(tiny: Path, tmp_path: Path) -> None:
    made = built(tiny, Store(tmp_path / "store"))
    assert artifacts(tmp_path / "store", "prune", "--unused-days", "1").stdout == ""
    assert len(Store(tmp_path / "store").all()) == 1
    os.utime(made.folder, (0, 0))
    assert artifacts(tmp_path / "store", "prune").stdout == ""
    assert artifacts(tmp_path / "store", "prune", "--unused-days", "1").stdout != ""
    assert Store(tmp_path / "store").all() == []


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["sing"], 64, "must be one of 'build', 'list'"),
        (["build"], 64, "artifacts build needs --engine"),
        (["fetch", "https://somewhere/x.zip"], 64, "an address needs --sha256"),
        (["fetch", "me/them", "--file", "x.zip"], 64, "a repository needs --revision"),
        (["fetch", "http://somewhere/x", "--sha256", "0" * 64], 78, "is no https:// address"),
        (["export", "../../etc", "/tmp/x"], 78, "there is no ../../etc (see list)"),
        (["import", "/nowhere/x.zip"], 78, "/nowhere/x.zip: No such file"),
        (["import", "/dev/null"], 78, "the archive is no zip archive"),
    ],
)
def test_what_cannot_be_done_says_why(
    tmp_path: Path, words: list[str], code: int, said: str
) -> None:
    ended = artifacts(tmp_path, *words)
    assert ended.returncode == code
    assert said in last_error(ended)


def test_help_names_every_action() -> None:
    ended = run(["artifacts", "--help"])
    assert ended.returncode == 0
    for action in ("build", "list", "verify", "warm", "prune", "export", "import", "fetch"):
        assert action in ended.stdout

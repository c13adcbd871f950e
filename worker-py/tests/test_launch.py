"""How checkpoints beside the default are started."""

from datetime import date
from pathlib import Path

import pytest

from omni_jev_worker import settings
from omni_jev_worker.checkpoints import Checkpoint
from omni_jev_worker.exits import BAD_CONFIGURATION, Refusal
from omni_jev_worker.launch import Launch

DEFAULT = Checkpoint("demo", "demo", None, Path(), date(2026, 1, 31))


def launch(*flags: str) -> Launch:
    return Launch(settings.parse(list(flags), {}), DEFAULT, threads=3)


def test_another_checkpoint_is_served_with_the_flags_that_this_one_was_given(tiny: Path) -> None:
    flags = [
        *("--device", "cuda", "--require-device", "--dialect", "jev", "--reject-truncated"),
        *("--max-queue", "9", "--length-buckets", "32,64", "--release-memory", "5GiB"),
        *("--keep-warm", "2", "--max-questions", "5", "--log-level", "debug", "--max-loaded", "3"),
        *("--preload", "english", "--revision", "v1", "--port", "0", "--alias", "x"),
        *("--weights", "fp16", "--recheck-parity", "60"),
    ]
    mine = settings.parse(flags, {})
    command = launch(*flags).command("multilingual")
    others = settings.parse(command[3:], {})
    for name in (
        *("device", "require_device", "dialect", "reject_truncated", "max_queue", "log_level"),
        *("length_buckets", "release_memory", "keep_warm", "drain_timeout", "revision"),
        *("tuning", "recheck_parity"),
    ):
        assert getattr(others, name) == getattr(mine, name), name
    assert others.limits.questions == 5
    assert others.threads == 3
    assert (others.model, others.max_loaded, others.routing) == ("multilingual", 1, "off")
    assert (others.preload, others.alias) == ((), None)


def test_a_folder_is_preloaded_under_its_name(tiny: Path) -> None:
    made = launch("--preload", str(tiny), "--preload", "english")
    assert made.preloaded == {"tiny": "tiny", "english": "convaiinnovations/laya"}
    assert f"--model={tiny.resolve()}" in made.command("tiny")


def test_a_folder_without_a_checkpoint_is_told_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match=r"--preload .*no such folder") as caught:
        launch("--preload", str(tmp_path / "none"))
    assert caught.value.code == BAD_CONFIGURATION


def test_two_checkpoints_cannot_have_the_same_name(tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "tiny").symlink_to(tiny)
    with pytest.raises(Refusal, match="two checkpoints by the name tiny"):
        launch("--preload", str(tiny), "--preload", str(tmp_path / "tiny"))

"""The contract suite against a published checkpoint, or an honest word that it was not run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.contract import FAILED, NOT_RUN, PASSED
from tests.harness import hub_cache
from tests.harness.omni_jev import ROOT


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A hub cache that has another checkpoint, the demo's, in the place of `english`."""
    hub_cache.make(tmp_path / "hub")
    return tmp_path


def contract(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.contract", "english", *arguments],
        cwd=ROOT,
        env={**os.environ, "HF_HOME": str(home), "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def test_it_runs_on_the_checkpoint_that_the_hubs_cache_has(cache: Path) -> None:
    chosen = ["--tests", "tests/test_generated_requests.py", "--requests", "20"]
    ran = contract(cache, *chosen, "--", "--max-queue", "200")
    assert ran.returncode == PASSED, ran.stdout + ran.stderr
    assert "[100%]" in ran.stdout


def test_what_pytest_cannot_run_is_a_failure_and_no_pass(cache: Path) -> None:
    ran = contract(cache, "--tests", "tests/test_that_is_not_there.py")
    assert ran.returncode == FAILED, ran.stdout + ran.stderr


def test_without_the_checkpoint_it_says_that_it_was_not_run_and_why(tmp_path: Path) -> None:
    ran = contract(tmp_path)
    assert ran.returncode == NOT_RUN
    assert ran.stdout.startswith("not run: ")
    assert "convaiinnovations/laya" in ran.stdout


@pytest.mark.skipif(sys.platform == "darwin", reason="a Mac has MPS")
def test_without_the_device_it_says_that_it_was_not_run_and_why(cache: Path) -> None:
    ran = contract(cache, "--device", "mps")
    assert ran.returncode == NOT_RUN
    assert "not run: torch finds no mps" in ran.stdout

"""Threads are chosen: from physical cores, a container's quota, and what the user says."""

import os
from pathlib import Path

import pytest

from omni_jev_worker import processors


@pytest.mark.parametrize(("cores", "threads"), [(1, 1), (2, 2), (3, 2), (8, 7)])
def test_one_core_is_left_to_the_frontend_where_that_is_not_half_of_all(
    monkeypatch: pytest.MonkeyPatch, cores: int, threads: int
) -> None:
    monkeypatch.setattr(processors, "physical_cores", lambda: cores)
    assert processors.choose_threads(None) == threads


def test_the_user_knows_better() -> None:
    assert processors.choose_threads(5) == 5


@pytest.mark.parametrize(
    ("text", "cores"),
    [
        ("150000 100000", 1),
        ("400000 100000", 4),
        ("10000 100000", 1),
        ("max 100000", None),
        ("", None),
    ],
)
def test_a_containers_quota_is_read(tmp_path: Path, text: str, cores: int | None) -> None:
    path = tmp_path / "cpu.max"
    path.write_text(text)
    assert processors._container_quota(path) == cores


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="Linux keeps cores there")
def test_two_logical_cores_of_one_physical_core_count_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    for cpu in range(4):
        topology = tmp_path / f"cpu{cpu}" / "topology"
        topology.mkdir(parents=True)
        (topology / "thread_siblings_list").write_text("0,2\n" if cpu % 2 == 0 else "1,3\n")
    assert processors._cores_of_linux(tmp_path) == 2


def test_waiting_threads_are_told_not_to_spin(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "TOKENIZERS_PARALLELISM"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    processors.prepare_environment(3)
    assert os.environ["OMP_WAIT_POLICY"] == "PASSIVE"
    assert os.environ["OMP_NUM_THREADS"] == "3"

"""The threads that each of several workers is started with; the real one's: test_lanes.py."""

import itertools
import time
from pathlib import Path

import pytest

from omni_jev_worker.processors import physical_cores
from tests.harness.fakes import FakeWorker
from tests.harness.process_table import Process

TABLES = """
[[worker]]
name = "main"

[[worker]]
name = "other"
python = "{python}"
args = "none {args}"
{lines}
"""


def flags_of(folder: Path, args: str, lines: str) -> dict[str, list[str]]:
    """Start two fake workers; give what follows `--threads` in the command of each."""
    toml = TABLES.format(python=folder / "python", args=args, lines=lines)
    with FakeWorker(folder, "none", "of-main", toml=toml) as running:
        running.wait_until_ready()
        deadline = time.monotonic() + 30
        while len(commands(running)) < 2:
            assert time.monotonic() < deadline, running.process.log
            time.sleep(0.05)
        found = {"main" if "of-main" in it else "other": it.split() for it in commands(running)}
    return {
        name: [after for word, after in itertools.pairwise(words) if word == "--threads"]
        for name, words in found.items()
    }


def commands(running: FakeWorker) -> list[str]:
    def is_worker(process: Process) -> bool:
        return process.parent == running.process.pid and "--uds" in process.command

    return [process.command for process in running.processes() if is_worker(process)]


# What one worker alone would take.
FREE = max(min(2, physical_cores()), physical_cores() - 1)


@pytest.mark.parametrize(
    ("args", "lines", "expected"),
    [
        ("", "max_tokens = 9", (max(1, FREE - FREE // 2), max(1, FREE // 2))),
        ("--threads 1", "max_tokens = 9", (max(1, FREE - 1), 1)),
        # One that gets no requests, or computes elsewhere, leaves the first one its own choice.
        ("", "", (None, None)),
        ("--device mps", "max_tokens = 9", (None, None)),
    ],
    ids=["share", "explicit", "spare", "elsewhere"],
)
def test_workers_of_one_processor_are_started_with_a_share_of_its_cores(
    tmp_path: Path, args: str, lines: str, expected: tuple[int | None, int | None]
) -> None:
    flags = flags_of(tmp_path, args, lines)
    wanted = [[] if threads is None else [str(threads)] for threads in expected]
    assert [flags["main"], flags["other"]] == wanted

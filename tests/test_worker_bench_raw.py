"""The tables of `benchmarks/worker` are drawn from raw lines, the same again from a file."""

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

from benchmarks.worker import against_upstream, refusals, threads
from benchmarks.worker.against_upstream import Round
from benchmarks.worker.raw import Line, Raw
from tests.harness.omni_jev import ROOT


def read(path: Path) -> list[Line]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def done(seconds: float, count: int) -> Round:
    return Round(seconds, [0.001 * (1 + number) for number in range(count)], 0)


def test_rounds_beside_upstream_are_told_the_same_from_a_file(tmp_path: Path) -> None:
    raw = Raw(tmp_path / "raw.jsonl", "against_upstream")
    for turn in (1, 2, 3):
        sides = {"upstream": done(2.0, 40), "omni-jev": done(1.0 + 0.1 * turn, 40)}
        raw.record("round", clients=8, sides={n: asdict(s) for n, s in sides.items()})
    raw.record("end", wrong=2)
    told = against_upstream.summary(raw.lines)
    assert "| 8 | answers/s | 20.0 | 33.3 | 1.67 (" in told
    assert told.endswith("wrong answers: 2")
    assert against_upstream.summary(read(tmp_path / "raw.jsonl")) == told
    assert read(tmp_path / "raw.jsonl")[0]["kind"] == "meta"


def test_rounds_of_threads_are_told_the_same_from_a_file(tmp_path: Path) -> None:
    raw = Raw(tmp_path / "raw.jsonl", "threads")
    for _ in range(2):
        of = {2: asdict(done(1.0, 60)), 1: asdict(done(2.0, 60))}
        raw.record("round", clients=1, threads=of)
    told = threads.summary(raw.lines)
    assert told.splitlines()[2:] == [
        "| 1 | 1 | 31.0 | 60.0 | 30.0 | 1.00 |",
        "| 1 | 2 | 31.0 | 60.0 | 60.0 | 2.00 |",
    ]
    assert threads.summary(read(tmp_path / "raw.jsonl")) == told


def test_refusals_are_measured_and_kept(tmp_path: Path) -> None:
    file = tmp_path / "raw.jsonl"
    command = [sys.executable, "benchmarks/worker/refusals.py", "--times", "1", "--raw", str(file)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.strip() == refusals.summary(read(file))
    assert len(read(file)) == 1 + len(refusals.ASKED)


def test_without_a_file_nothing_is_kept(tmp_path: Path) -> None:
    raw = Raw(None, "refusals")
    raw.record("run", asked="help", ms=1.0, processor_ms=1.0)
    assert "| help | 1 | 1 | 1 |" in refusals.summary(raw.lines)
    assert list(tmp_path.iterdir()) == []

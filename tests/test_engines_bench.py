"""The benchmark of the engines: what the gate refuses is told, and not timed as another way."""

import os
from pathlib import Path

import numpy as np

from benchmarks.engines import engines, gate_rows, subjects
from omni_jev_worker import checkpoints
from omni_jev_worker.known_answers import KnownAnswers
from omni_jev_worker.tuning import Tuning


def test_a_way_that_the_gate_refuses_has_its_reason_and_no_times(tmp_path: Path) -> None:
    demo = checkpoints.find_demo(os.environ)
    known = KnownAnswers(tmp_path, demo.folder, {})
    way = Tuning("int8", engine="onnx")
    refused = subjects.prepare("onnx int8", way, demo, known, tmp_path, compares=True)
    assert refused.model is None
    assert "everyday" in refused.reason
    (line,) = [line for line in engines.parity_lines([refused]) if "int8" in line]
    assert "| shut: a probability differs by" in line


def test_rows_past_the_tolerance_and_past_half_of_it_are_counted_and_drawn() -> None:
    found = np.array([0.03] + [0.015] * 50 + [0.001] * 49)
    first, _, *table = gate_rows.lines(found, 0.02, [1, 100])
    assert first.startswith("100 everyday rows: 1 differ by more than 0.02, 51 by more than half")
    assert table[2].startswith("| 1 | ")
    assert table[3] == "| 100 | 100 % | 100.0 % |"

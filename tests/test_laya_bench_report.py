"""The report of the benchmark of the whole system: tables, the gate, parity."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.laya import tables
from benchmarks.laya.results import Results, Run, read


def run(config: str, *lines: dict[str, Any], number: int = 1, ended: bool = True) -> Run:
    """Make a run's lines as a program would record them."""
    made = Run("bench_http", config, "paper", f"{config}-{number}")
    made.lines += [{"kind": "meta", "load": 0.5, "power": "mains"}, *lines]
    if ended:
        made.lines.append({"kind": "end", "load": 0.6})
    return made


def latency(*milliseconds: float) -> dict[str, Any]:
    return {"kind": "latency", "title": "6 questions", "milliseconds": list(milliseconds)}


def answer(noul: float, name: str = "one-68") -> dict[str, Any]:
    return {"kind": "answers", "input": name, "answers": {"q": {"type": "noul", "noul": noul}}}


def test_equal_runs_that_differ_by_more_than_the_gate_are_told() -> None:
    close = [run("C5", latency(10.0)), run("C5", latency(10.9), number=2)]
    assert tables.gate(close, 0.1).misses == []
    far = [*close, run("C5", latency(11.2), number=3)]
    assert tables.gate(far, 0.1).misses == ["C5, 6 questions: runs differ by 12.0%, over 10%"]


def test_runs_of_different_configurations_are_not_held_against_each_other() -> None:
    judged = tables.gate([run("C3", latency(10.0)), run("C5", latency(99.0))], 0.1)
    assert judged.misses == []
    assert "nothing says how much runs differ" in judged.markdown


def test_answers_are_compared_with_those_of_the_reference() -> None:
    runs = [run("C1", answer(0.9)), run("C5", answer(0.903)), run("C3", answer(0.91))]
    judged = tables.parity(runs, "C1", 0.005)
    assert "| C5 | C5-1 | 1 | 0.0030 | one-68 | 0 | 0 |" in judged.markdown
    assert len(judged.misses) == 1
    assert "C3 C3-1: 0.0100 from C1" in judged.misses[0]


def test_another_best_option_and_a_missing_answer_are_misses() -> None:
    refused = {"kind": "answers", "input": "one-68", "refused": "status 422"}
    runs = [run("C1", answer(0.53)), run("C5", answer(0.49)), run("C3", refused)]
    misses = tables.parity(runs, "C1", 0.5).misses
    assert any("C5" in miss and "1 other best" in miss for miss in misses)
    assert any("C3" in miss and "1 not answered" in miss for miss in misses)


def test_a_reference_without_answers_is_refused() -> None:
    with pytest.raises(ValueError, match="--ref C2: no run of it has answers"):
        tables.parity([run("C1", answer(0.5))], "C2", 0.005)


def test_a_run_that_failed_or_was_broken_off_is_told_as_that() -> None:
    failed = run("C3o", {"kind": "failed", "reason": "StartFailed: no | GPU\nhere"})
    assert tables.state(failed) == "failed: StartFailed: no / GPU here"
    assert tables.state(run("C5", ended=False)) == "broken off"
    assert tables.state(run("C5")) == "whole"
    assert "broken off" in tables.runs_table([run("C5", ended=False)])


def test_the_memory_of_a_server_that_ran_already_is_what_it_says_of_itself() -> None:
    told = {"kind": "memory", "samples": [], "worker": {"footprint_bytes": 700 * 1024 * 1024}}
    assert "| C5 | C5-1 |  |  | 700 |  |" in tables.starts_table([run("C5", told)])
    samples = [{"bytes": n * 1024 * 1024, "phase": "warm"} for n in (500, 510)]
    sampled = {"kind": "memory", "samples": samples, "worker": {}}
    assert "| C5 | C5-1 |  |  | 510 | 510 |" in tables.starts_table([run("C5", sampled)])


def test_runs_of_different_labels_or_checkpoints_are_not_put_together() -> None:
    one, other = run("C3"), run("C5")
    tables.check_joinable([one, other])
    other.label = "mine"
    with pytest.raises(ValueError, match="different labels are no one report: mine, paper"):
        tables.check_joinable([one, other])
    other.label = "paper"
    other.lines.append({"kind": "meta", "checkpoint": {"sha256": "ab" * 32}})
    with pytest.raises(ValueError, match="different checkpoints"):
        tables.check_joinable([one, other])


def test_a_device_other_than_the_cpu_is_a_column_of_its_own() -> None:
    on_mps = run("C3o", latency(10.0))
    on_mps.lines.append({"kind": "meta", "device": "mps"})
    assert tables.by_config([run("C3o"), on_mps]).keys() == {"C3o", "C3o mps"}
    on_mps.lines.append(answer(0.9))
    assert tables.parity([on_mps, run("C5", answer(0.9))], "C3o", 0.005).misses == []


def test_answers_that_came_after_the_arrivals_count_in_the_time_that_they_took() -> None:
    # 60 answers to 5 s of arrivals, the last of them after 10 s.
    late = {"answered_per_second": 12.0, "answers_per_second": 6.0}
    assert tables.answered(late) == 6.0
    assert tables.answered({"answered_per_second": 5.9, "answers_per_second": 6.1}) == 5.9


def test_a_p99_of_few_requests_is_not_shown() -> None:
    few, many = run("C3", latency(*[10.0] * 99)), run("C5", latency(*[10.0] * 99, 12.0))
    drawn = tables.warm_table([few, many])
    assert "| 6 questions | 10.0 | 10.0 / 10.0 |" in drawn


def test_runs_are_read_as_they_were_recorded_with_equal_ones_apart(tmp_path: Path) -> None:
    for _ in range(2):
        made = Results(tmp_path, "bench_http", "C5", "paper")
        made.record("meta", note="größer")
        made.record("end")
    assert made.path.name == "bench_http_C5_paper.jsonl"
    runs = read([made.path])
    assert len(runs) == 2
    assert [one.ended for one in runs] == [True, True]
    assert runs[0].one("meta")["note"] == "größer"
    broken = tmp_path / "broken.jsonl"
    broken.write_text(json.dumps({"kind": "meta"}) + "\n")
    with pytest.raises(ValueError, match=r"broken\.jsonl, line 1: no result"):
        read([broken])

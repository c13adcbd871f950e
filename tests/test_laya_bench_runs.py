"""The programs of the benchmark of the whole system, run as a person does, with tiny counts."""

import sys
from pathlib import Path

from benchmarks.laya.inputs import WORKLOAD
from tests.harness.bench import lines, program
from tests.harness.omni_jev import OmniJev

TINY = ("--count", "3", "--warmup", "1", "--only", "one-68,six-short")


def test_a_running_server_is_measured_and_reported(pair: OmniJev, tmp_path: Path) -> None:
    arrivals = ("--rates", "20", "--seconds", "1")
    asked = ("--url", pair.url, "--config", "C5", "--out", str(tmp_path), *TINY, *arrivals)
    done = program("bench_http", *asked)
    assert done.returncode == 0, done.stderr
    recorded = lines(tmp_path, "bench_http_C5_feasibility")
    kinds = [line["kind"] for line in recorded]
    assert (kinds[0], kinds[-1]) == ("meta", "end")
    assert recorded[0]["packages"]["laya"]
    assert len(recorded[0]["checkpoint"]["sha256"]) == 64
    warm = [line for line in recorded if line["kind"] == "latency"]
    assert [line["tokens"] for line in warm] == [68, 292]
    assert all(len(line["milliseconds"]) == 3 and not line["problem"] for line in warm)
    (due,) = [line for line in recorded if line["kind"] == "arrivals"]
    assert due["errors"] == {}
    assert due["unfinished"] == 0
    assert len(due["milliseconds"]) > 5

    files = [str(file) for file in tmp_path.glob("*.jsonl")]
    report = tmp_path / "report"
    told = program("report", *files, "--out", str(report), "--ref", "C5")
    assert told.returncode == 0, told.stderr
    text = (report / "report.md").read_text()
    assert text == told.stdout[: len(text)]
    assert "| 6 short questions |" in text
    assert (report / "latency.png").read_bytes().startswith(b"\x89PNG")
    for name in ("latency", "throughput"):
        assert "</svg>" in (report / f"{name}.svg").read_text()


def test_ones_own_requests_are_replayed_to_two_running_servers_in_pairs(
    pair: OmniJev, tmp_path: Path
) -> None:
    own = str(WORKLOAD / "requests.example.jsonl")
    sides = ("--a", pair.url, "--b", pair.url, "--gap", "0,0.01")
    counts = ("--count", "2", "--warmup", "1")
    done = program("paired", *sides, "--replay", own, *counts, "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    pairs = [line for line in lines(tmp_path, "paired") if line["kind"] == "pair"]
    assert len(pairs) == 2 * 2 * 3
    assert {line["difference"] for line in pairs} == {0}
    again = program("paired", "--summarize", *map(str, tmp_path.glob("*.jsonl")))
    assert again.stdout == done.stdout
    assert "| requests.example-1 | 0.01 | 2 |" in again.stdout


def test_a_server_that_does_not_start_is_a_failed_run(tmp_path: Path) -> None:
    command = f"{sys.executable} -c 'raise SystemExit(\"no such model\")'"
    done = program(
        "bench_http", "--config", "C3", "--spawn", command, "--out", str(tmp_path), *TINY
    )
    assert done.returncode == 1
    assert "no such model" in done.stderr
    (failed,) = [line for line in lines(tmp_path, "bench_http") if line["kind"] == "failed"]
    assert "no such model" in failed["reason"]


def test_a_labelled_run_is_refused_above_the_load_before_anything_is_started(
    tmp_path: Path,
) -> None:
    done = program(
        "bench_inproc", "--run", "paper", "--max-load", "-1", "--out", str(tmp_path), *TINY
    )
    assert done.returncode == 3
    assert done.stderr.startswith("refused: ")
    assert not list(tmp_path.iterdir())


def test_a_label_that_is_no_name_of_a_file_is_refused(tmp_path: Path) -> None:
    done = program("bench_inproc", "--run", "../mine", "--out", str(tmp_path))
    assert done.returncode == 2
    assert "a label is letters" in done.stderr

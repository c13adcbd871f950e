"""Where a request's time goes, and what an end of memory does, as it is told and as it is run."""

import json
import profile as standard_profile
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.laya import fallback, profile, shortage, spans
from benchmarks.laya.spans import Span
from tests.harness.bench import lines, program
from tests.harness.omni_jev import binary


def test_the_standard_librarys_profile_is_not_hidden_by_the_program_of_that_name() -> None:
    assert hasattr(standard_profile, "run")
    assert standard_profile is not profile


MS = 1_000_000
REQUEST = Span("request", 0, 100 * MS)
OWN = [
    Span("worker", 5 * MS, 98 * MS),
    Span("tokenize", 7 * MS, 9 * MS),
    Span("queue", 9 * MS, 10 * MS),
    Span("batch", 10 * MS, 90 * MS),
    Span("copy", 10 * MS, 13 * MS),
    Span("decode", 91 * MS, 95 * MS),
]


def test_a_requests_time_is_divided_among_its_steps_without_rest() -> None:
    parts = spans.steps(REQUEST, OWN)
    assert parts == pytest.approx(
        {
            "outside": 7,
            "tokenize": 2,
            "queue": 1,
            "copy": 3,
            "device": 77,
            "decode": 4,
            "rest": 93 - 2 - 1 - 80 - 4,
        }
    )
    assert sum(parts.values()) == pytest.approx(REQUEST.ms)


def test_an_end_that_the_worker_notes_when_the_client_has_the_answer_already_counts_to_there() -> (
    None
):
    late = [span._replace(end=104 * MS) if span.name == "worker" else span for span in OWN]
    parts = spans.steps(REQUEST, late)
    assert parts["outside"] == pytest.approx(5)
    assert sum(parts.values()) == pytest.approx(REQUEST.ms)


def test_a_request_that_the_worker_did_not_note_is_refused() -> None:
    with pytest.raises(ValueError, match="noted no batch"):
        spans.steps(REQUEST, [span for span in OWN if span.name != "batch"])


def test_spans_belong_to_the_request_within_which_they_began() -> None:
    later = Span("worker", 105 * MS, 120 * MS)
    assert spans.within([*OWN, later], REQUEST) == OWN
    assert spans.within([*OWN, later], Span("request", 101 * MS, 130 * MS)) == [later]


def test_what_the_frontend_takes_is_what_its_way_has_more_outside_the_worker() -> None:
    steps = spans.steps(REQUEST, OWN)
    line = {"title": "6 questions", "way": "through", "ms": 100.0, "steps": steps}
    direct = {**line, "way": "direct", "steps": {**steps, "outside": 4.0}}
    told = profile.summary([line, direct])
    assert f"| {spans.STEPS['frontend']} | 3.000 |" in told
    assert f"| {spans.STEPS['sockets']} | 4.000 |" in told
    assert "| **sum of these** | 100.000 |" in told


def test_each_phase_of_an_end_of_memory_is_told_with_what_was_not_answered() -> None:
    def asked(phase: str, ms: float, outcome: str = "200", device: str = "cuda") -> dict[str, Any]:
        return {"phase": phase, "ms": ms, "outcome": outcome, "device": device}

    told = fallback.summary(
        [
            asked("before", 3.0),
            asked("large, memory short", 900.0, "status 500"),
            asked("short", 4.0, device="cpu"),
            asked("short", 5.0),
        ]
    )
    assert "| the large one that meets the end of memory | 1 | 900.0 | 900.0 | 1 | cuda |" in told
    assert "| small ones after it, memory still short | 2 | 4.0 | 5.0 | 0 | cpu, cuda |" in told


def test_the_worker_notes_every_step_of_a_real_request(tmp_path: Path) -> None:
    tiny = ("--count", "2", "--warmup", "1", "--only", "one-68")
    done = program("profile", *tiny, "--out", str(tmp_path), "--frontend", str(binary()))
    assert done.returncode == 0, done.stderr
    recorded = [line for line in lines(tmp_path, "profile") if line["kind"] == "spans"]
    assert sorted(line["way"] for line in recorded) == ["direct"] * 2 + ["through"] * 2
    for line in recorded:
        assert all(ms > 0 for ms in line["steps"].values()), line
        assert sum(line["steps"].values()) == pytest.approx(line["ms"])
    (trace,) = tmp_path.glob("*.trace.json")
    names = {event["name"] for event in json.loads(trace.read_text())["traceEvents"]}
    assert {"request: one-68, through", "worker", "queue", "batch"} <= names


def test_a_simulated_end_of_memory_is_survived_and_told(tmp_path: Path) -> None:
    done = program("fallback", "--simulate", "--count", "1", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    found = lines(tmp_path, "fallback_simulated")
    asked = {line["phase"]: line for line in found if line["kind"] == "asked"}
    assert asked["large, memory enough"]["fallback"]["splits"] == 0
    assert asked["large, memory short"]["fallback"]["splits"] > 0
    # The recovery is that of what failed: a large one runs whole again.
    whole = [asked[phase]["fallback"] for phase in ("large, recovery", "large, after")]
    assert {each["splits"] for each in whole} == {asked["short"]["fallback"]["splits"]}
    assert {line["outcome"] for line in asked.values()} == {"200"}
    assert "small ones after it, memory still short" in done.stdout
    (recovered,) = (line for line in found if line["kind"] == "recovered")
    assert recovered["seconds"] is not None
    (file,) = tmp_path.glob("*.jsonl")
    again = program("again", str(file))
    assert fallback.told(fallback.recorded(file)) in again.stdout


class Asker:
    """Answers as a worker whose memory ends once so much of it is held."""

    def __init__(self, enough: int) -> None:
        self.held = 0
        self.enough = enough
        self.asked = 0

    def hold(self) -> bool:
        self.held += 1
        return self.held < 5

    def failing(self, phase: str, asked: object, otherwise: str = "") -> bool:
        self.asked += 1
        return self.held >= self.enough


def test_more_memory_is_held_until_a_batch_really_fails() -> None:
    asker: Any = Asker(enough=3)
    fallback.meet_the_end(asker, None, asker.hold)  # type: ignore[arg-type]
    assert (asker.held, asker.asked) == (3, 4)


def test_a_run_in_which_no_batch_failed_has_shown_nothing_and_fails() -> None:
    asker: Any = Asker(enough=99)
    with pytest.raises(fallback.NothingFailed, match="no batch failed"):
        fallback.meet_the_end(asker, None, asker.hold)  # type: ignore[arg-type]


def test_the_process_that_holds_memory_takes_more_when_asked_and_ends_with_the_block(
    tmp_path: Path,
) -> None:
    noted = tmp_path / "noted"
    stand_in = tmp_path / "hog.py"
    stand_in.write_text(
        "import sys\n"
        "leave = sys.argv[1]\n"
        "while leave:\n"
        f"    open({str(noted)!r}, 'a').write(leave.strip() + ' ')\n"
        "    print('holding', flush=True)\n"
        "    leave = sys.stdin.readline()\n"
        f"open({str(noted)!r}, 'a').write('gone')\n"
    )
    with shortage.on_cuda(3, (sys.executable, str(stand_in))) as hog:
        assert hog.more()
        assert hog.more()
        assert not hog.more()
    assert noted.read_text() == "3 1 0 gone"


def test_a_process_that_cannot_take_the_memory_is_an_error() -> None:
    with (
        pytest.raises(OSError, match="did not take it"),
        shortage.on_cuda(3, (sys.executable, "-c", "")),
    ):
        pass


def test_an_end_of_memory_needs_a_device_or_to_be_made_up(tmp_path: Path) -> None:
    done = program("fallback", "--out", str(tmp_path))
    assert done.returncode == 75
    assert done.stderr.startswith("not run: ")

"""The parts of `benchmarks/lanes` that make its figures."""

from typing import Any

import pytest

from benchmarks.lanes import lane_report as report
from benchmarks.lanes.arrivals import BURST_S, KINDS, PERIOD_S, Due, bursts, mixture, timetable
from benchmarks.lanes.arrivals import Requests as MadeRequests
from benchmarks.lanes.lane_load import Answered
from tests.harness.omni_jev import DEMO_CHECKPOINT


def answered(number: int, *, took: float = 0.01, kind: str = "short", **other: Any) -> Answered:
    given: dict[str, Any] = {"status": 200, "lane": "main", "reason": "", "answers": [], **other}
    due = float(number)
    return Answered(number, kind, due, due, due + took, **given)


def test_arrivals_come_in_bursts_at_the_mean_rate() -> None:
    moments = bursts(50, 90)
    assert len(moments) == pytest.approx(50 * 90, rel=0.05)
    assert all(moment % PERIOD_S <= BURST_S for moment in moments)
    assert moments == bursts(50, 90)


def test_kinds_come_in_their_shares_and_every_request_is_another() -> None:
    kinds = mixture(2000)
    for kind, share in KINDS.items():
        assert kinds.count(kind) / 2000 == pytest.approx(share, abs=0.05)
    table = timetable(MadeRequests(DEMO_CHECKPOINT), 20, 6)
    assert len({due.request for due in table}) == len(table)
    assert all(isinstance(due, Due) for due in table)


def test_a_short_request_is_late_by_its_due_moment_or_without_an_answer() -> None:
    seen = [answered(n) for n in range(7)]
    seen += [answered(7, took=0.11), answered(8, status=503), answered(9, took=5, kind="long")]
    figures = report.figures(seen)
    assert (figures.shorts, figures.late, figures.errors) == (9, 2, 1)
    assert figures.late_share == pytest.approx(2 / 9)


def test_answers_differ_beyond_what_parity_allows() -> None:
    def with_noul(value: float) -> list[Answered]:
        return [answered(1, answers=[{"type": "noul", "noul": value}]), answered(2, status=503)]

    assert report.differing(with_noul(0.5), with_noul(0.519)) == (1, 0)
    assert report.differing(with_noul(0.5), with_noul(0.53)) == (1, 1)


def test_a_killed_lane_costs_what_was_under_way_its_time() -> None:
    right = [answered(n, answers=[n]) for n in range(6)]
    killed = [
        *right[:3],
        answered(3, took=0.9, answers=[3]),
        answered(4, status=502),
        answered(5, answers=[6], lane="quick"),
    ]
    kill = report.kill_figures("quick", 3.5, killed, right)
    assert (kill.errors, kill.wrong, kill.back) == (1, 1, True)
    assert kill.slowest_ms == pytest.approx(400)
    table = report.table(
        report.figures(right),
        report.figures(right),
        throughput=(10, 16),
        differences=(6, 0),
        kills=[kill],
    )
    assert "1.60) | 1.5 at least | reached" in table
    assert "| `quick` killed | | 1 errors" in table.replace("|  |", "| |")
    assert table.count("**missed**") == 2

"""The parts of `benchmarks/lanes` that make its figures."""

import socketserver
import time
from threading import Thread
from typing import Any

import pytest

from benchmarks.lanes import lane_report as report
from benchmarks.lanes.arrivals import BURST_S, KINDS, PERIOD_S, Due, bursts, mixture, timetable
from benchmarks.lanes.arrivals import Requests as MadeRequests
from benchmarks.lanes.lane_load import Answered
from benchmarks.lanes.senders import Senders
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


def test_another_option_of_a_near_tie_is_counted_and_one_that_is_less_likely_differs() -> None:
    def chosen(name: str, left: float) -> list[Answered]:
        probabilities = {"left": left, "right": 1 - left}
        return [answered(1, answers=[{"choice": name, "probabilities": probabilities}])]

    tie = chosen("left", 0.501), chosen("right", 0.499)
    assert report.differing(*tie) == (1, 0)
    assert (report.near_ties(*tie), report.unlike(*tie)) == (1, [])
    assert report.near_ties(tie[0], tie[0]) == 0
    other = chosen("left", 0.6), chosen("right", 0.4)
    assert report.differing(*other) == (1, 1)
    assert report.near_ties(*other) == 0
    assert report.unlike(*other)[0]["answers"][0] == other[0][0].answers
    # Numbers that agree do not excuse a choice that they do not bear out.
    assert report.differing(chosen("left", 0.9), chosen("right", 0.9)) == (1, 1)


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
        ties=2,
        kills=[kill],
    )
    assert "1.60) | 1.5 at least | reached" in table
    assert "| `quick` killed | | 1 errors" in table.replace("|  |", "| |")
    assert table.count("**missed**") == 2


@pytest.mark.parametrize("count", [1, 2])
def test_a_rounds_events_come_by_its_own_clock(count: int) -> None:
    senders, moments = Senders(count), list[float]()
    due = Due(0, 0.3, "short", b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
    with socketserver.TCPServer(("127.0.0.1", 0), Answering) as server:
        Thread(target=server.handle_request).start()

        def note() -> None:
            moments.append(time.perf_counter() - senders.begun)

        port = int(server.server_address[1])
        (answer,) = senders.arrive(("127.0.0.1", port), [due], [(0.2, note)])
    assert answer.status == 200
    assert moments[0] >= 0.2
    assert 0.3 <= answer.sent <= answer.done


class Answering(socketserver.StreamRequestHandler):
    """Answers one request."""

    def handle(self) -> None:
        while self.rfile.readline().strip():
            pass
        body = b'{"answers": {}}'
        self.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))

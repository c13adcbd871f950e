"""Two workers as lanes of one frontend: the real binary, the real worker, the demo checkpoint."""

import gzip
import itertools
import json
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from typing import Any

import pytest

from omni_jev_worker.processors import physical_cores
from tests.harness.client import Answer, assert_own_error
from tests.harness.client import ask as fetch
from tests.harness.clients import Clients, assert_soon
from tests.harness.decisions import MOOD, REFUND, TEAM, decision
from tests.harness.lanes import ask, route, two_lanes
from tests.harness.logged_process import kill
from tests.harness.omni_jev import START_SECONDS, OmniJev, binary, clean_environment

LANES = f"""
trace = "trace.jsonl"

[[worker]]
name = "main"

[[worker]]
name = "quick"
python = "{sys.executable}"
args = "--model demo"
takes = "short-single"
"""

LONG = "The parcel came late and the box was open. " * 30
KINDS: dict[str, dict[str, Any]] = {
    "short": decision(),
    "long": decision(LONG),
    "several": decision(refund=REFUND, team=TEAM, mood=MOOD, again=REFUND),
}


@pytest.fixture(scope="module")
def lanes() -> Iterator[OmniJev]:
    """Start a lane for everything and one for short requests of one question; both are ready."""
    with two_lanes(LANES) as running:
        yield running


def answers(answer: Answer) -> Any:
    """Give the decisions, without what differs from one answer to the next of the same."""
    return answer.json()["answers"]


def pid_of(running: OmniJev, lane: str) -> int:
    shown = subprocess.run(
        [binary(), "worker", "status", lane, "--json"],
        env=clean_environment(running.scratch) | {"XDG_RUNTIME_DIR": str(running.scratch)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return int(json.loads(shown.stdout)[0]["pid"])


def test_each_kind_goes_to_its_lane_and_the_answer_says_why(lanes: OmniJev) -> None:
    # Both lanes take it, and either may have been the quicker one of late.
    either = {("quick", "short_and_single"), ("main", "shorter_backlog")}
    assert route(ask(lanes, KINDS["short"])) in either
    assert route(ask(lanes, KINDS["several"])) == ("main", "several_questions")
    assert route(ask(lanes, KINDS["long"])) == ("main", "too_long")
    assert route(lanes.ask("GET", "/v1/models")) == ("main", "default_lane")


def test_the_workers_share_the_cores_unless_they_are_told_their_threads(lanes: OmniJev) -> None:
    cores = physical_cores()
    headers = {"main": {"x-omni-jev-lane": "main"}, "quick": {"x-omni-jev-lane": "quick"}}
    health = {lane: lanes.ask("GET", "/health", headers=headers[lane]).json() for lane in headers}
    threads = [health[lane]["threads"] for lane in ("main", "quick")]
    # What one alone would take, one at least for each.
    free = max(min(2, cores), cores - 1)
    assert threads == [max(1, free - free // 2), max(1, free // 2)]
    told = [event for event in lanes.process.events if "share the cores" in event.text]
    assert [event["threads"] for event in told] == [f"main: {threads[0]}, quick: {threads[1]}"]


def test_a_compressed_decision_counts_for_its_lane_and_is_told_not_to_have_been_read(
    lanes: OmniJev,
) -> None:
    body = gzip.compress(json.dumps(KINDS["short"]).encode())
    headers = {"content-encoding": "gzip", "x-request-id": "compressed"}
    before = metric(lanes, 'lane_routed_total{lane="main",reason="not_read"}')
    answer = lanes.ask("POST", "/v1/systemone", body, headers=headers)
    assert route(answer) == ("main", "not_read")
    assert answers(answer) == answers(ask(lanes, KINDS["short"]))
    assert metric(lanes, 'lane_routed_total{lane="main",reason="not_read"}') == before + 1


SHORT = json.dumps(KINDS["short"]).encode()
PACKED = gzip.compress(SHORT)
ODD = {
    "deflate": ({"content-encoding": "deflate"}, zlib.compress(SHORT), 200),
    "truncated": ({"content-encoding": "gzip"}, PACKED[:-9], 400),
    "not-compressed": ({"content-encoding": "gzip"}, SHORT, 400),
    "compressed-unsaid": ({}, PACKED, 422),
    "bomb": ({"content-encoding": "gzip"}, gzip.compress(b" " * 50_000_000), 413),
    "unknown-encoding": ({"content-encoding": "br"}, b"\x1b\x00", 415),
    "deep": ({}, b'{"questions":' + b"[" * 100_000, 422),
    "too-long-for-a-worker": (
        {},
        json.dumps({**KINDS["short"], "state": "x" * 3_000_000}).encode(),
        413,
    ),
    "beyond-the-lane-that-is-asked-for": (
        {"content-encoding": "gzip", "x-omni-jev-lane": "quick"},
        gzip.compress(json.dumps(KINDS["several"]).encode()),
        200,
    ),
    "no-lane": ({"content-encoding": "gzip", "x-omni-jev-lane": "main, quick"}, PACKED, 400),
}


@pytest.mark.parametrize("kind", ODD)
def test_an_odd_body_is_answered_once_and_leaves_nothing_at_a_lane(
    lanes: OmniJev, kind: str
) -> None:
    headers, body, status = ODD[kind]
    answer = lanes.ask("POST", "/v1/systemone", body, headers=headers, timeout=30)
    assert answer.status == status, answer.body
    for lane in ("main", "quick"):
        assert metric(lanes, f'lane_in_flight{{lane="{lane}"}}') == 0
        assert metric(lanes, f'lane_backlog_seconds{{lane="{lane}"}}') == 0
        assert metric(lanes, f'lane_breaker{{lane="{lane}",state="closed"}}') == 1


def metric(running: OmniJev, name: str) -> float:
    """Give a metric of the frontend by its name and labels."""
    text = fetch(running.admin_address, "GET", "/metrics").body.decode()
    lines = [line for line in text.splitlines() if line.startswith(f"omni_jev_frontend_{name} ")]
    return float(lines[0].rsplit(" ", 1)[1])


def test_a_lane_that_is_asked_for_answers_and_both_answer_the_same(lanes: OmniJev) -> None:
    for lane in ("main", "quick"):
        answer = ask(lanes, KINDS["short"], lane)
        assert route(answer) == (lane, "lane_requested")
        assert answers(answer) == answers(ask(lanes, KINDS["short"]))
    refused = ask(lanes, KINDS["several"], "quick")
    assert_own_error(refused, 400, "invalid_request_error")
    assert "quick takes 1 questions at most" in refused.json()["detail"]["message"]
    assert_own_error(ask(lanes, KINDS["short"], "other"), 400, "invalid_request_error")


def test_a_body_arrives_as_it_was_sent_and_a_bad_one_is_answered_by_a_lane(lanes: OmniJev) -> None:
    questions = json.dumps({"refund": REFUND}).encode()
    state = b'"\\u0050lease refund \xf0\x9f\x98\xa1"'
    body = b' {"questions" :\t%b,\r\n"model":"demo","state":%b}\n' % (questions, state)
    assert answers(ask(lanes, body)) == answers(ask(lanes, json.loads(body)))
    for bad in (b"", b"{", b'{"questions": []}', b'{"questions": {"q": {}}}', b"\xff"):
        answer = ask(lanes, bad)
        assert answer.status in {400, 422}, answer.body
        # The worker's own words: the frontend's name an error_type.
        assert "error_type" not in answer.body.decode()
        assert answer.header("x-omni-jev-lane") in {"main", "quick"}


@pytest.mark.parametrize("lane", ["quick", "main"])
def test_a_lane_that_is_killed_costs_no_answer_and_comes_back(lanes: OmniJev, lane: str) -> None:
    # What only one lane takes has to wait for it, so short ones are asked.
    expected = answers(ask(lanes, KINDS["short"]))

    def right(_: str, answer: Answer) -> None:
        assert answers(answer) == expected

    def body(_: str) -> dict[str, Any]:
        return KINDS["short"]

    with Clients(lanes.address, count=6, pause=0.0, body=body, check=right) as clients:
        used = {route(one.answer)[0] for one in waited(clients, 60) if one.answer is not None}
        assert used == {"main", "quick"}, "six clients at once are too many for one lane"
        clients.wait_until_waiting()
        killed = time.monotonic()
        kill(pid_of(lanes, lane))
        in_flight = clients.in_flight_at(killed)
        assert {one.status for one in in_flight} == {200}
        assert_soon(in_flight, killed, 1.0)
        deadline = time.monotonic() + START_SECONDS
        while not is_used(clients, lane, killed):
            assert time.monotonic() < deadline, lanes.process.log
            time.sleep(0.1)
    assert set(clients.statuses()) == {200}


def waited(clients: Clients, count: int) -> list[Any]:
    clients.wait_for(200, since=0, count=count, seconds=60)
    return clients.seen()


def is_used(clients: Clients, lane: str, since: float) -> bool:
    """Whether a process that was started after that answers on this lane."""
    later = [one.answer for one in clients.seen(since + 1.0) if one.answer is not None]
    return any(answer.header("x-omni-jev-lane") == lane for answer in later)


def test_the_trace_has_each_decision(lanes: OmniJev) -> None:
    ids = [f"traced-{number}" for number in range(20)]
    for request_id, kind in zip(ids, itertools.cycle(KINDS)):
        ask(lanes, KINDS[kind], request_id=request_id)
    deadline = time.monotonic() + 20
    while len(lines := traced(lanes, set(ids))) < len(ids):
        assert time.monotonic() < deadline, lines
        time.sleep(0.05)
    assert sorted(lines) == sorted(ids)
    for line in lines.values():
        assert line["status"] == 200
        assert line["submit"] <= line["routed"] <= line["dispatched"] <= line["answered"]
        assert set(line["backlog_ms"]) == {"main", "quick"}
        assert line["estimate_ms"] > 0


def traced(running: OmniJev, ids: set[str]) -> dict[str, Any]:
    text = (running.scratch / "trace.jsonl").read_text()
    lines = [json.loads(line) for line in text.splitlines() if line.endswith("}")]
    return {line["id"]: line for line in lines if line.get("id") in ids}

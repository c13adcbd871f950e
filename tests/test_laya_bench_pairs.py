"""Pairs of requests to two servers: their order, their ratio, and what they say of it."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.laya import inputs, overhead, paired, pairs
from benchmarks.laya.asking import Client, Refused
from benchmarks.laya.results import Results, read
from benchmarks.laya.subjects import Subject, locate
from tests.harness.servers import Received, Reply, Server, replying

(ONE,) = inputs.timed(["one-68"])


def test_each_round_has_every_input_once_and_chance_decides_who_is_first() -> None:
    asked = inputs.timed()
    planned = list(pairs.plan(asked, 50))
    assert planned == list(pairs.plan(asked, 50))
    for start in range(0, len(planned), 6):
        assert {one.name for one, _ in planned[start : start + 6]} == {one.name for one in asked}
    swapped = Counter(swap for _, swap in planned)
    assert 110 <= swapped[True] <= 190


def saying(noul: float, heard: list[str], name: str) -> Callable[[Received], Reply]:
    def answer(request: Received) -> Reply:
        heard.append(name)
        (question,) = json.loads(request.body)["questions"]
        said = {"answers": {question: {"type": "noul", "noul": noul}}}
        return Reply(200, json.dumps(said).encode())

    return answer


def client(server: Server) -> Client:
    address, path = locate(server.url)
    return Client(Subject("one", address, path))


@pytest.mark.parametrize("swapped", [False, True])
def test_a_pair_asks_both_sides_once_in_its_order_and_compares_them(*, swapped: bool) -> None:
    heard: list[str] = []
    with (
        Server(replying(saying(0.90, heard, "a"))) as a,
        Server(replying(saying(0.93, heard, "b"))) as b,
    ):
        line = pairs.ask_pair((client(a), client(b)), ONE, swapped=swapped)
    assert heard == (["b", "a"] if swapped else ["a", "b"])
    assert line["first"] == heard[0]
    assert line["difference"] == pytest.approx(0.03)
    assert line["mismatches"] == 0
    assert line["a_ms"] > 0
    assert line["b_ms"] > 0


def test_a_pair_is_asked_under_the_path_of_its_url() -> None:
    seen = []

    def answer(request: Received) -> Reply:
        seen.append(request.path)
        return saying(0.5, [], "a")(request)

    with Server(replying(answer)) as server:
        address, path = locate(f"{server.url}/laya/")
        Client(Subject("one", address, path)).ask(ONE)
    assert seen == ["/laya/v1/systemone"]


def test_an_answer_other_than_200_ends_a_comparison() -> None:
    with (
        Server(replying(lambda _: Reply(503, b"{}"))) as server,
        pytest.raises(Refused, match="503"),
    ):
        client(server).ask(ONE)


@pytest.mark.parametrize(
    "url", ["ftp://host", "http://", "http://name:secret@host", "http://host?key=1", "host:80"]
)
def test_a_url_that_cannot_be_asked_is_refused_without_what_it_holds(url: str) -> None:
    with pytest.raises(ValueError, match="a URL is ") as raised:
        locate(url)
    assert "secret" not in str(raised.value)


def pair(a: float, b: float, **more: Any) -> dict[str, Any]:
    line = {"input": ONE.name, "title": ONE.title, "gap": 0.0, "a_ms": a, "b_ms": b}
    return {**line, "difference": 0.001, "mismatches": 0, **more}


def test_the_ratio_is_that_of_pairs_and_not_of_medians() -> None:
    # By pair always half as long, whatever the machine did meanwhile.
    lines = [pair(a, a / 2) for a in (10.0, 11.0, 50.0, 12.0, 40.0)]
    assert pairs.ratio(lines) == (0.5, 0.5, 0.5)
    assert pairs.difference([pair(10, 11), pair(90, 91)]).value == pytest.approx(1)


def test_recorded_comparisons_are_summarized_by_sides_gap_and_input(tmp_path: Path) -> None:
    for gap in (0.0, 2.0):
        results = Results(tmp_path, "paired", "", "paper")
        results.record("sides", a="", b="C3")
        for number in range(10):
            results.record("pair", **pair(10 + number, 5 + number / 2, gap=gap))
    results.record("end")
    text = paired.summarize(read([results.path]))
    assert "a: `no flags`, b: `C3`" in text
    assert f"| {ONE.title} | 0 | 10 | 14.00 | 7.00 | 0.50 (0.50 to 0.50) | 0.0010 | 0 |" in text
    assert f"| {ONE.title} | 2 | 10 |" in text
    assert "1 of 2 runs broken off" in text
    with pytest.raises(ValueError, match="no pairs"):
        paired.summarize([])


def test_answers_that_cannot_be_compared_are_told_as_that() -> None:
    assert "not comparable" in pairs.summary([pair(1, 1), pair(1, 1, incomparable="other options")])


def test_the_frontends_cost_stands_beside_a_control_of_the_direct_way_alone() -> None:
    lines = [pair(10, 10.4, to="through") for _ in range(5)]
    lines += [pair(10, 10.1, to="again") for _ in range(5)]
    row = overhead.summary(lines).splitlines()[-1]
    assert "+0.400 (+0.400 to +0.400) | +0.100 (+0.100 to +0.100)" in row

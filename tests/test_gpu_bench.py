"""The GPU benchmark's own parts: lengths, arrivals, percentiles, verdicts, and what counts."""

import importlib
import json
import socket
import threading
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu import load
from benchmarks.gpu.connection import Reply
from benchmarks.gpu.outcome import Outcome, fault
from benchmarks.gpu.reference import compare
from benchmarks.gpu.stages import complaints
from benchmarks.gpu.table import ROWS, Figure, Table, not_run
from benchmarks.gpu.workload import ONE, QUESTIONS, Item, Workload
from benchmarks.percentiles import percentile
from tests.harness.omni_jev import DEMO_CHECKPOINT


@pytest.fixture(scope="module")
def workload() -> Workload:
    return Workload(DEMO_CHECKPOINT)


def rows_of_laya(item: Item) -> list[int]:
    """The lengths of the rows that laya makes of a request."""
    common = importlib.import_module("laya.common")
    agent = importlib.import_module("laya.agent").Agent
    tokenizers = importlib.import_module("transformers").AutoTokenizer
    tokenizer = tokenizers.from_pretrained(str(DEMO_CHECKPOINT / "tokenizer"))
    body = json.loads(item.request.split(b"\r\n\r\n")[1])
    return [
        len(common.build_sequence(tokenizer, body["state"], agent._to_internal(question))[0])
        for question in body["questions"].values()
    ]


@pytest.mark.parametrize("length", [48, 64, 128, 511, 512])
def test_a_row_has_exactly_the_tokens_that_are_asked_for(workload: Workload, length: int) -> None:
    (item,) = workload.items(ONE, [length])
    assert rows_of_laya(item) == [length]
    assert item.tokens == length


@pytest.mark.parametrize("count", [3, 6])
def test_all_rows_of_several_questions_have_the_same_length(workload: Workload, count: int) -> None:
    questions = workload.equally_long(QUESTIONS[:count])
    (item,) = workload.items(questions, [128])
    assert rows_of_laya(item) == [128] * count
    assert item.tokens == 128 * count
    assert {question["type"] for question in questions} == {"noul", "choice", "score"}


def test_no_two_requests_are_the_same_and_none_is_cut(workload: Workload) -> None:
    items = workload.items(ONE, [64] * 500)
    assert len({json.loads(i.request.split(b"\r\n\r\n")[1])["state"] for i in items}) == 500
    assert len({item.mark for item in items}) == 500


def test_the_compared_requests_have_one_to_six_questions_and_fit_the_window(
    workload: Workload,
) -> None:
    requests = workload.mixed()
    assert len(requests) == 30
    assert {len(request["questions"]) for request in requests} == {1, 2, 3, 4, 5, 6}
    lengths = [
        workload.fixed(question) + workload.tokens(request["state"])
        for request in requests
        for question in request["questions"].values()
    ]
    assert max(lengths) <= 512
    assert min(lengths) < 64
    assert max(lengths) > 500


def test_a_percentile_is_a_value_that_so_many_do_not_exceed() -> None:
    values = [float(number) for number in range(100, 0, -1)]
    assert percentile(values, 0.5) == 50
    assert percentile(values, 0.99) == 99
    assert percentile(values, 1.0) == 100
    assert percentile([3.0], 0.01) == 3
    with pytest.raises(ValueError, match="no values"):
        percentile([], 0.5)


def test_arrivals_are_at_random_moments_of_the_wanted_rate_and_the_same_each_time() -> None:
    moments = load.poisson(500, 60, seed=1)
    assert moments == load.poisson(500, 60, seed=1) == sorted(moments)
    assert moments != load.poisson(500, 60, seed=2)
    assert moments[-1] < 60
    assert len(moments) == pytest.approx(30_000, rel=0.03)
    gaps = [later - earlier for earlier, later in pairwise(moments)]
    # Of an exponential distribution, 1/e are longer than the mean.
    assert sum(gap > 1 / 500 for gap in gaps) / len(gaps) == pytest.approx(0.368, abs=0.02)


def answer(number: int, *, tokens: int = 64) -> bytes:
    body = {"answers": {f"q{number}.0": {}}, "usage": {"input_tokens": tokens}}
    return json.dumps(body).encode()


ITEM = Item(b"", b'"q7.', 1, 64)


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (200, answer(7), None),
        (503, answer(7), "status 503"),
        (200, answer(70), "an answer to other questions"),
        (200, answer(7, tokens=65), "65 tokens, not 64"),
        (200, b'{"q7.0": 1}', "no tokens, not 64"),
    ],
)
def test_an_answer_counts_only_if_it_is_whole_and_to_its_own_request(
    status: int, body: bytes, said: str | None
) -> None:
    assert fault(ITEM, Reply(status, body, closes=False)) == said


class Holding:
    """A server that answers nothing before it has so many requests; then each as it came."""

    def __init__(self, count: int) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._full = threading.Barrier(count)
        self.address = ("127.0.0.1", int(self._listener.getsockname()[1]))
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                taken, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(taken,), daemon=True).start()

    def _serve(self, taken: socket.socket) -> None:
        with taken:
            while request := taken.recv(65536):
                number = int(request.split(b"number=")[1].split(b"\r\n")[0])
                try:
                    self._full.wait(timeout=30)
                except threading.BrokenBarrierError:
                    return
                body = answer(number)
                head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)
                taken.sendall(head + body)

    def close(self) -> None:
        self._listener.close()
        self._full.abort()


def numbered(count: int) -> list[Item]:
    request = "POST / HTTP/1.1\r\nx: number={}\r\n\r\n"
    return [Item(request.format(n).encode(), f'"q{n}.'.encode(), 1, 64) for n in range(count)]


def test_an_answers_time_counts_from_when_its_request_was_due() -> None:
    server = Holding(3)
    try:
        outcome = load.arrivals(server.address, numbered(3), [0.0, 0.1, 0.3], processes=1)
    finally:
        server.close()
    assert outcome.problem() is None
    shortest, middle, longest = sorted(outcome.times)
    assert longest >= 0.3
    assert 0.2 <= middle < longest
    assert shortest < middle


def test_what_is_not_answered_in_time_is_told_and_not_left_out() -> None:
    server = Holding(4)
    try:
        outcome = load.arrivals(
            server.address, numbered(3), [0.0, 0.0, 0.0], processes=1, grace=0.2
        )
    finally:
        server.close()
    assert outcome.unfinished == 3
    assert outcome.problem() == "fails: 3 not finished of 3"


def test_clients_of_several_processes_ask_every_request_once() -> None:
    server = Holding(1)
    try:
        outcome = load.busy_clients(server.address, numbered(200), 4, 30, processes=2)
    finally:
        server.close()
    assert outcome.problem() is None
    assert len(outcome.times) == 200
    assert outcome.rate > 0
    assert len(outcome.generator) == 2


def test_one_clients_first_requests_do_not_count() -> None:
    server = Holding(1)
    try:
        outcome = load.one_client(server.address, numbered(30), 10, 30)
    finally:
        server.close()
    assert len(outcome.times) == 20


def test_errors_are_told_with_their_number() -> None:
    outcome = Outcome(times=[0.1])
    outcome.errors["status 503"] += 2
    assert outcome.problem() == "fails: 2 errors (status 503: 2) of 3"


GOOD: dict[str, Figure] = {row.key: row.bar.aim if row.bar is not None else 1.0 for row in ROWS}


def table(changed: dict[str, Figure], *, judged: bool = True) -> Table:
    return Table({"throughput": 40.0}, GOOD | changed, judged=judged)


def verdict(key: str, figure: Figure, *, judged: bool = True) -> str:
    row = next(row for row in ROWS if row.key == key)
    return table({key: figure}, judged=judged).verdict(row)


def test_a_figure_meets_its_aim_or_its_bar_or_neither() -> None:
    assert table({}).misses() == []
    assert verdict("1x64.p50", 2.2) == "met, aim too"
    assert verdict("1x64.p50", 3.0) == "met"
    assert verdict("1x64.p50", 3.01) == "NOT MET"
    assert verdict("throughput", 3000.0) == "met, aim too"
    assert verdict("throughput", 1500.0) == "met"
    assert verdict("throughput", 1499.0) == "NOT MET"
    assert verdict("mismatches", 1.0) == "NOT MET"
    assert verdict("direct.p50", 99.0) == "no bar"


def test_a_failed_stage_is_a_miss_and_one_that_was_not_run_is_told_as_that() -> None:
    assert verdict("poisson.p99", "fails: 3 errors") == "FAILED"
    assert verdict("memory", "failed: OSError") == "FAILED"
    assert verdict("memory", "not run: no device memory") == "not run"
    assert table({"memory": "failed: OSError"}).misses() == [
        "device memory after every length: GB: FAILED (failed: OSError)"
    ]


def test_on_a_device_without_bars_only_wrong_answers_are_misses() -> None:
    assert verdict("1x64.p50", 99.0, judged=False) == "no bar"
    assert verdict("poisson.p99", "fails: 3 errors", judged=False) == "no bar"
    assert verdict("memory", "failed: OSError", judged=False) == "FAILED"
    assert verdict("difference", 0.021, judged=False) == "NOT MET"


def test_the_table_shows_both_sides_and_their_ratio() -> None:
    drawn = table({"throughput": 3200.0}).markdown()
    assert "| 128 tokens, 64 clients: answers/s | 40 | 3,200 | 80 | ≥ 1500 (3000) | met" in drawn
    nothing = not_run("no CUDA here")
    unrun = Table(nothing, nothing, judged=False, published=True).markdown()
    assert unrun.count("| not run: no CUDA here | not run: no CUDA here |") == len(ROWS)
    assert "35 at 68 tokens" in unrun


def noul(value: float) -> dict[str, Any]:
    return {"q0": {"type": "noul", "noul": value}}


def choice(**options: float) -> dict[str, Any]:
    return {"q0": {"type": "choice", "probabilities": options}}


def test_the_largest_difference_is_found_with_its_question() -> None:
    right = [noul(0.9), choice(a=0.5, b=0.3, c=0.2)]
    found = compare([noul(0.89), choice(a=0.5, b=0.33, c=0.17)], right)
    assert found.largest == pytest.approx(0.03)
    assert found.where == "request 1, question q0"
    assert (found.questions, found.mismatches) == (2, 0)


def test_another_best_option_is_a_mismatch_unless_the_reference_was_undecided() -> None:
    assert compare([noul(0.49)], [noul(0.53)]).mismatches == 1
    assert compare([noul(0.49)], [noul(0.51)]).mismatches == 0
    assert compare([choice(a=0.4, b=0.6)], [choice(a=0.6, b=0.4)]).mismatches == 1


@pytest.mark.parametrize(
    "given", [noul(float("nan")), {}, choice(a=1.0), {"other": {"type": "noul", "noul": 0.5}}]
)
def test_answers_that_cannot_be_compared_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="request 0"):
        compare([given], [choice(a=0.5, b=0.5)])


def test_a_health_that_tells_of_faults_is_complained_of() -> None:
    good = {
        "status": "ready",
        "compile": {"active": True, "recompiled_after_ready": False},
        "fallback": {"count": 0, "splits": 0},
    }
    assert complaints(good, compiled=True) == []
    bad = {
        "status": "degraded",
        "compile": {"active": False, "recompiled_after_ready": True},
        "fallback": {"count": 2, "splits": 1},
    }
    assert len(complaints(bad, compiled=True)) == 5
    assert len(complaints(bad, compiled=False)) == 4


def test_the_reference_answers_as_laya_does(tmp_path: Path, workload: Workload) -> None:
    reference = importlib.import_module("benchmarks.gpu.reference").Reference
    requests = workload.mixed(2)
    running = reference(DEMO_CHECKPOINT, requests, tmp_path)
    try:
        with running.still():
            pass
        answers = running.answers(120)
    finally:
        running.close()
    agent = importlib.import_module("tests.harness.reference").make_agent(DEMO_CHECKPOINT)
    expected = [agent.system_one(r["state"], r["questions"])["answers"] for r in requests]
    assert compare(answers, expected).largest == 0

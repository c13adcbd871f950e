"""A worker that is one of several: it takes what it can, and says 421 to the rest at once."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from running_worker import RunningWorker, run

NOUL = {"type": "noul", "instructions": "refund"}
SHORT = {"state": "please refund", "questions": {"q": NOUL}}


@pytest.fixture(scope="module")
def lane(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningWorker]:
    store = tmp_path_factory.mktemp("artifacts")
    flags = ["--engine", "onnx", "--artifacts", str(store), "--takes-tokens", "40"]
    with RunningWorker(["--model", str(tiny), *flags, "--takes-questions", "2"]) as worker:
        yield worker


def rows_run(lane: RunningWorker) -> int:
    return int(lane.ask("GET", "/health").json()["queue"]["rows"])


def test_it_answers_what_it_takes_and_tells_what_runs_it(lane: RunningWorker) -> None:
    reply = lane.decide(SHORT)
    assert reply.status == 200
    health = lane.ask("GET", "/health").json()
    assert (health["engine"], health["status"]) == ("onnx", "ready")
    assert re.fullmatch("[0-9a-f]{64}", health["artifact"])
    assert health["parity"]["passed"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            {"state": "please refund " * 60, "questions": {"q": NOUL}},
            "this worker takes 40 tokens, not 128",
        ),
        (
            {"state": "refund", "questions": {str(n): NOUL for n in range(3)}},
            "this worker takes 2 questions, not 3",
        ),
    ],
)
def test_what_it_does_not_take_gets_a_421_and_no_inference(
    lane: RunningWorker, body: dict[str, object], message: str
) -> None:
    before = rows_run(lane)
    reply = lane.decide(body, x_request_id="mine")
    assert reply.status == 421
    assert reply.json() == {"detail": {"error_type": "misdirected_request", "message": message}}
    assert reply.headers["x-request-id"] == "mine"
    assert rows_run(lane) == before


def test_a_shortlist_is_another_workers_where_the_engine_has_no_vectors(
    lane: RunningWorker,
) -> None:
    options = {"refund": None, "delivery": None, "login": None}
    asked = {"type": "choice", "instructions": "Which?", "criteria": options, "x_shortlist": 2}
    reply = lane.decide({"state": "please refund", "questions": {"q": asked}})
    assert reply.status == 421
    assert "no vectors for x_shortlist" in reply.json()["detail"]["message"]
    # With no more options than are to be kept nothing is compared.
    reply = lane.decide({"state": "please refund", "questions": {"q": {**asked, "x_shortlist": 3}}})
    assert reply.status == 200
    assert reply.json()["answers"]["q"]["x_shortlist"]["of"] == 3


def test_a_batch_of_which_one_state_is_too_long_is_misdirected_as_a_whole(
    lane: RunningWorker,
) -> None:
    asked = {"states": ["refund", "please refund " * 60], "questions": {"q": NOUL}}
    reply = lane.ask("POST", "/v1/systemone/batch", json.dumps(asked).encode())
    assert reply.status == 421


def test_every_decision_tells_where_its_time_went(lane: RunningWorker) -> None:
    told = lane.decide(SHORT).headers["server-timing"]
    found = re.fullmatch(
        r"prepare;dur=(\d+\.\d\d), queue;dur=(\d+\.\d\d), model;dur=(\d+\.\d\d)", told
    )
    assert found is not None
    assert float(found[3]) > 0
    assert sum(map(float, found.groups())) < 60_000


def test_without_the_flags_everything_is_taken(worker: RunningWorker) -> None:
    body = {"state": "please refund " * 60, "questions": {str(n): NOUL for n in range(3)}}
    assert worker.decide(body).status == 200


def test_an_engine_that_cannot_be_had_exits_78(tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    ended = run(["--model", str(tiny), "--engine", "onnx", "--artifacts", str(tmp_path / "file")])
    assert ended.returncode == 78
    assert "--engine onnx" in ended.stderr.splitlines()[-1]
    assert "--artifacts" in ended.stderr.splitlines()[-1]

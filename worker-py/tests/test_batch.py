"""The batch endpoint: each state's answer or error in its place, and no more than its share."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from omni_jev_worker import batch
from omni_jev_worker.decisions import Decision
from omni_jev_worker.engine import InferenceFailed
from omni_jev_worker.protocol import problems, request
from omni_jev_worker.protocol.limits import Limits
from omni_jev_worker.protocol.problems import Problem
from taking import take_job
from test_app import Reply, Served

QUESTIONS: dict[str, Any] = {"q": {"type": "noul", "instructions": "Refund?"}}


def ask(served: Served, states: Any, outcomes: list[Any]) -> Reply:
    """Send a batch, and complete its jobs in their order: with a number, or with an exception."""

    async def run() -> Reply:
        body = json.dumps({"model": "m", "states": states, "questions": QUESTIONS}).encode()
        asking = asyncio.create_task(served.send(path="/v1/systemone/batch", body=body))
        for outcome in outcomes:
            job = await asyncio.to_thread(take_job, served.queue)
            if isinstance(outcome, Exception):
                job.result.set_exception(outcome)
            else:
                job.result.set_result({"type": "noul", "noul": outcome})
        return await asking

    return asyncio.run(run())


@pytest.fixture
def served(tmp_path: Path) -> Served:
    return Served(tmp_path)


def test_each_state_has_its_decision_in_its_place(served: Served) -> None:
    reply = ask(served, ["a", {"b": 1}, ["c"]], [0.1, 0.2, 0.3])
    assert reply.status == 200
    body = reply.json()
    assert [result["answers"]["q"]["noul"] for result in body["results"]] == [0.1, 0.2, 0.3]
    assert body["usage"] == {"input_tokens": 21, "output_tokens": 0}
    # Each is what the endpoint for one answers.
    assert set(body["results"][0]) == {"model", "answers", "usage", "routing"}


def test_a_state_that_cannot_be_answered_has_its_error_in_its_place(served: Served) -> None:
    states = ["a", 5, "x" * 50_001, "d", "e"]
    body = ask(served, states, [0.1, InferenceFailed(), 0.3]).json()
    one, number, long, failed, last = body["results"]
    assert one["answers"]["q"]["noul"] == 0.1
    assert number["error"]["status"] == 422
    assert number["error"]["detail"][0]["loc"] == ["body", "states", 1]
    assert long["error"]["status"] == 413
    assert failed["error"]["status"] == 500
    assert last["answers"]["q"]["noul"] == 0.3


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"questions": QUESTIONS}, 422),
        ({"states": "a", "questions": QUESTIONS}, 422),
        ({"states": [], "questions": QUESTIONS}, 422),
        ({"states": ["a"]}, 422),
        ({"states": ["a"], "questions": {"q": {"type": "box"}}}, 422),
        ({"states": ["a"] * 65, "questions": QUESTIONS}, 413),
        ({"states": ["a"], "questions": {str(n): QUESTIONS["q"] for n in range(65)}}, 413),
        ([], 422),
    ],
)
def test_what_is_wrong_with_all_of_it_is_told_once(served: Served, body: Any, status: int) -> None:
    data = json.dumps(body).encode()
    reply = asyncio.run(served.send(path="/v1/systemone/batch", body=data))
    assert reply.status == status
    assert "results" not in reply.json()


def test_a_worker_without_room_for_any_state_refuses_the_batch_with_a_time(served: Served) -> None:
    with served.queue.admit(8):
        reply = ask(served, ["a", "b"], [])
    assert reply.status == 503
    assert int(reply.headers["retry-after"]) >= 1


def test_a_batch_takes_a_share_of_the_queue_and_at_least_one_state() -> None:
    assert batch.width(256, 1) == 64
    assert batch.width(256, 64) == 1
    assert batch.width(8, 200) == 1


def test_no_more_states_are_under_way_than_may_be_and_the_rest_follows() -> None:
    under_way = most = 0

    async def decide(asked: request.Request) -> Decision:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        under_way -= 1
        if asked.state == "7":
            raise problems.overloaded("full", 1)
        return Decision({"state": asked.state})

    states = [str(n) for n in range(20)]
    checked = request.check_batch({"states": states, "questions": QUESTIONS}, Limits())
    results = asyncio.run(batch.decide_each(checked, decide, 3))
    assert most == 3
    assert isinstance(results[7], Problem)
    assert results[:7] + results[8:] == [{"state": n} for n in states if n != "7"]


def test_when_the_client_leaves_nothing_of_the_batch_goes_on() -> None:
    started: list[str] = []

    async def decide(asked: request.Request) -> Decision:
        started.append(asked.state)
        await asyncio.Event().wait()
        return Decision({})

    async def leave() -> None:
        states = {"states": ["a", "b", "c"], "questions": QUESTIONS}
        checked = request.check_batch(states, Limits())
        deciding = asyncio.create_task(batch.decide_each(checked, decide, 2))
        while len(started) < 2:
            await asyncio.sleep(0)
        deciding.cancel()
        with pytest.raises(asyncio.CancelledError):
            await deciding
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(leave())
    assert started == ["a", "b"]

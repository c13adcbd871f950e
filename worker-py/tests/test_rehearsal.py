"""Requests go the whole way before a client's do, within bounds, and leave no trace."""

import asyncio
import json
from typing import Any

import pytest

from omni_jev_worker import rehearsal
from omni_jev_worker.http import Receive, Scope, Send
from omni_jev_worker.rehearsal import rehearse
from running_worker import RunningWorker


class Answering:
    """An application that answers with a status, and keeps what it was asked."""

    def __init__(self, status: int = 200) -> None:
        self._status = status
        self.asked: list[tuple[Scope, Any]] = []
        self._now = 0
        self.most_abreast = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._now += 1
        self.most_abreast = max(self.most_abreast, self._now)
        body = (await receive())["body"]
        self.asked.append((scope, json.loads(body)))
        await asyncio.sleep(0)
        await send({"type": "http.response.start", "status": self._status, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})
        self._now -= 1


def test_decisions_of_every_type_are_asked_for_alone_and_several_at_once() -> None:
    application = Answering()
    assert asyncio.run(rehearse(application, "tiny", None)) == rehearsal.MOST
    kinds = {q["type"] for _, body in application.asked for q in body["questions"].values()}
    assert {body["model"] for _, body in application.asked} == {"tiny"}
    assert kinds == {"noul", "choice", "score"}
    assert application.most_abreast > 1


def test_a_worker_with_a_key_is_asked_with_it() -> None:
    application = Answering()
    asyncio.run(rehearse(application, "tiny", b"secret"))
    assert (b"authorization", b"Bearer secret") in application.asked[0][0]["headers"]


def test_a_slow_model_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rehearsal, "SECONDS", 0.0)
    application = Answering()
    assert asyncio.run(rehearse(application, "tiny", None)) == 1


def test_one_that_is_refused_is_the_last_and_is_told(caplog: pytest.LogCaptureFixture) -> None:
    application = Answering(503)
    assert asyncio.run(rehearse(application, "tiny", None)) == 0
    assert len(application.asked) == 1
    assert "answered 503" in caplog.text


def test_a_worker_that_is_ready_has_answered_some_and_counts_none(tiny: Any) -> None:
    flags = ["--model", str(tiny), "--log-level", "debug"]
    with RunningWorker(flags, LAYA_API_KEY="secret") as worker:
        told = worker.ask("GET", "/health").json()
        assert told["queue"]["rows"] == told["queue"]["batches"] == 0
        rehearsed = [line for line in worker.lines if line.get("request_id") == "warm-up"]
    assert all(line["level"] != "warning" for line in worker.lines)
    assert rehearsed
    assert all(line["status"] == 200 for line in rehearsed)

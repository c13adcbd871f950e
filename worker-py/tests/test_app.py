"""The HTTP application, without a network: who is let in, what is answered, what is given up."""

import asyncio
import gzip
import json
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from datetime import date
from pathlib import Path
from typing import Any, cast

import pytest
import zstandard

from omni_jev_worker.app import App
from omni_jev_worker.checkpoints import Checkpoint
from omni_jev_worker.engine import Engine, InferenceFailed
from omni_jev_worker.envelope import Envelope
from omni_jev_worker.health import ModelState, Snapshot
from omni_jev_worker.pool import CheckpointPool
from omni_jev_worker.protocol.limits import Limits
from omni_jev_worker.queue import RowQueue
from omni_jev_worker.routing import Routing
from taking import OneByOne, take_job

ASKED = {"state": "x", "questions": {"q": {"type": "noul", "instructions": "Refund?"}}}
RELEASED = date(2026, 1, 31)
STATE = ModelState(
    name="tiny",
    checkpoint="tiny",
    revision=None,
    released=RELEASED,
    device="cpu",
    device_mismatch=False,
    weights_dtype="torch.float32",
    autocast_dtype=None,
    mps_amp_min_rows=5,
    window=128,
    forward="laya",
    warmup_ms=1,
)


class FakeModel:
    """Stands in for the model: counts what it is given, fails when told to."""

    def __init__(self) -> None:
        self.encode_fault: Exception | None = None
        self.tokens = 7
        self.lengths = (7,)
        self.items = [{"ids": [1], "markers": [0]}]
        self.note: dict[str, Any] = {}

    can_embed = True

    def takes(self, encoded: Any) -> bool:
        return True

    def most_rows(self, questions: Any) -> int:
        return len(questions)

    def encode(self, state: Any, questions: Any) -> "FakeModel":
        if self.encode_fault is not None:
            raise self.encode_fault
        return self

    def notes(self) -> dict[str, Any]:
        return {"q": self.note}

    def decode(self, encoded: Any, scores: Any) -> dict[str, Any]:
        return {"q": scores}


def no_command(name: str) -> list[str]:
    raise AssertionError(f"a process was asked for: {name}")


class FakeEngine:
    """Has a model and a state, and no thread: the test answers the jobs itself."""

    def __init__(self) -> None:
        self.model = FakeModel()
        self.snapshot = Snapshot("auto", STATE, 1)
        self.recovery: Future[str | None] = Future()

    def recover_device(self) -> "Future[str | None]":
        return self.recovery


class Reply:
    def __init__(self, messages: list[dict[str, Any]]) -> None:
        self.status = int(messages[0]["status"])
        pairs = [(name.decode(), value.decode()) for name, value in messages[0]["headers"]]
        self.headers = dict(pairs)
        assert len(pairs) == len(self.headers), f"a header came twice: {pairs}"
        self.body = b"".join(message.get("body", b"") for message in messages[1:])

    def json(self) -> Any:
        return json.loads(self.body)


class Served:
    """An application with everything a test turns: queue, engine, the client's connection."""

    def __init__(
        self,
        tmp_path: Path,
        *,
        key: bytes | None = None,
        control_token: bytes | None = None,
        capacity: int = 8,
        request_timeout: float | None = None,
        alias: str | None = None,
        **options: Any,
    ) -> None:
        self.queue = RowQueue(capacity)
        self.engine = FakeEngine()
        self.app = App(
            cast("Engine", self.engine),
            self.queue,
            Routing(Checkpoint("tiny", "tiny", None, tmp_path, RELEASED), alias=alias),
            CheckpointPool(no_command, room=0, most_waiting=1),
            instance="the-instance",
            api_key=key,
            control_token=control_token,
            request_timeout=request_timeout,
            **options,
        )
        self.asgi = Envelope(self.app.asgi)

    async def send(
        self,
        method: str = "POST",
        path: str = "/v1/systemone",
        body: bytes | None = None,
        headers: dict[str, str] | list[tuple[str, str]] | None = None,
        gone: asyncio.Event | None = None,
    ) -> Reply:
        data = json.dumps(ASKED).encode() if body is None else body
        waiting = [{"type": "http.request", "body": data, "more_body": False}]
        never = asyncio.Event()
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            if waiting:
                return waiting.pop()
            await (gone or never).wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)

        given = headers.items() if isinstance(headers, dict) else headers or ()
        pairs = [(k.encode("latin-1"), v.encode("latin-1")) for k, v in given]
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "scheme": "http",
            "http_version": "1.1",
            "headers": pairs,
        }
        await self.asgi(scope, receive, send)
        return Reply(sent) if sent else Reply([{"status": 0, "headers": []}])

    async def answering(
        self, give: Callable[["Future[Any]"], None], ask: Coroutine[Any, Any, Reply]
    ) -> Reply:
        """Answer one job while a request runs."""

        def answer() -> None:
            give(take_job(self.queue).result)

        asking = asyncio.create_task(ask)
        await asyncio.to_thread(answer)
        return await asking


@pytest.fixture
def served(tmp_path: Path) -> Served:
    return Served(tmp_path)


def good(result: "Future[Any]") -> None:
    result.set_result({"type": "noul", "noul": 0.5})


def test_a_decision_has_answers_usage_and_the_checkpoint_that_gave_it(served: Served) -> None:
    reply = asyncio.run(served.answering(good, served.send()))
    assert reply.status == 200
    assert reply.headers["content-type"] == "application/json"
    body = reply.json()
    assert body["answers"] == {"q": {"type": "noul", "noul": 0.5}}
    assert body["usage"] == {"input_tokens": 7, "output_tokens": 0}
    assert body["routing"]["model"] == "tiny"


@pytest.mark.parametrize(
    ("encoding", "pack"), [("gzip", gzip.compress), ("zstd", zstandard.compress)]
)
def test_a_compressed_request_is_answered(
    served: Served, encoding: str, pack: Callable[[bytes], bytes]
) -> None:
    body = pack(json.dumps(ASKED).encode())
    ask = served.send(body=body, headers={"content-encoding": encoding})
    assert asyncio.run(served.answering(good, ask)).status == 200


def test_content_encoding_lines_count_together(served: Served) -> None:
    body = gzip.compress(json.dumps(ASKED).encode())
    lines = [("content-encoding", "identity"), ("content-encoding", "gzip")]
    ask = served.send(body=body, headers=lines)
    assert asyncio.run(served.answering(good, ask)).status == 200


def test_a_model_that_gives_no_finite_number_is_a_500_without_a_reason(served: Served) -> None:
    def nan(result: "Future[Any]") -> None:
        result.set_result({"type": "noul", "noul": float("nan")})

    reply = asyncio.run(served.answering(nan, served.send()))
    assert reply.status == 500
    assert reply.json()["detail"]["error_type"] == "internal_error"


def test_an_answer_of_a_row_that_lost_tokens_says_how_many(served: Served) -> None:
    served.engine.model.note = {"x_truncated": {"state": 3, "options": 0, "instructions": 0}}
    body = asyncio.run(served.answering(good, served.send())).json()
    assert body["answers"]["q"]["x_truncated"] == {"state": 3, "options": 0, "instructions": 0}


def test_what_lost_tokens_is_a_422_that_names_the_place_where_that_is_asked_for(
    tmp_path: Path,
) -> None:
    served = Served(tmp_path, reject_truncated=True)
    assert asyncio.run(served.answering(good, served.send())).status == 200
    served.engine.model.note = {"x_truncated": {"state": 3, "options": 2, "instructions": 1}}
    reply = asyncio.run(served.send())
    assert reply.status == 422
    assert [(fault["loc"], fault["type"]) for fault in reply.json()["detail"]] == [
        (["body", "state"], "truncated"),
        (["body", "questions", "q", "instructions"], "truncated"),
        (["body", "questions", "q", "criteria"], "truncated"),
    ]
    assert "3 tokens" in reply.json()["detail"][0]["msg"]
    assert served.queue.state().depth == 0


@pytest.mark.parametrize(("name", "said"), [("english", "alias"), ("jev-latest", "default")])
def test_an_alias_and_an_unknown_name_mean_the_default_and_the_answer_says_so(
    tmp_path: Path, name: str, said: str
) -> None:
    served = Served(tmp_path, alias="english")
    ask = served.send(body=json.dumps({"model": name, **ASKED}).encode())
    routing = asyncio.run(served.answering(good, ask)).json()["routing"]
    assert routing["model"] == "tiny"
    assert said in routing["reason"]


def test_limits_can_be_set(tmp_path: Path) -> None:
    served = Served(tmp_path, limits=Limits(state_characters=3))
    reply = asyncio.run(served.send(body=json.dumps({**ASKED, "state": "1234"}).encode()))
    assert reply.status == 413


def test_a_failed_forward_pass_is_a_500_in_the_clients_shape(served: Served) -> None:
    def fail(result: "Future[Any]") -> None:
        result.set_exception(InferenceFailed("secret"))

    reply = asyncio.run(served.answering(fail, served.send()))
    assert reply.status == 500
    assert "secret" not in reply.body.decode()
    assert set(reply.json()["detail"]) == {"error_type", "message"}


def test_an_unexpected_fault_is_a_500_whose_text_is_neither_sent_nor_logged(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    served.engine.model.encode_fault = KeyError("the client's own words")
    reply = asyncio.run(served.send(headers={"x-request-id": "abc"}))
    assert reply.status == 500
    assert reply.headers["x-request-id"] == "abc"
    assert "KeyError" in caplog.text
    assert "own words" not in caplog.text + reply.body.decode()


def test_a_full_queue_is_a_503_with_a_time_to_come_back(served: Served) -> None:
    with served.queue.admit(8):
        reply = asyncio.run(served.send())
    assert reply.status == 503
    assert int(reply.headers["retry-after"]) >= 1
    assert reply.json()["detail"]["error_type"] == "service_unavailable"


def test_a_stopping_worker_is_a_503(served: Served) -> None:
    served.queue.close()
    assert asyncio.run(served.send()).status == 503


def test_work_whose_client_left_never_reaches_the_device(served: Served) -> None:
    async def leave() -> None:
        gone = asyncio.Event()
        asking = asyncio.create_task(served.send(gone=gone))
        async with asyncio.timeout(60):
            while not served.queue.state().oldest_ms and not served.queue._waiting:
                await asyncio.sleep(0)
        gone.set()
        assert (await asking).status == 0
        assert served.queue.state().depth == 0
        assert served.queue.state().oldest_ms == 0

    asyncio.run(leave())
    served.queue.close()
    assert served.queue.take(OneByOne()) is None


def test_a_request_whose_time_is_up_is_a_504_and_never_reaches_the_device(tmp_path: Path) -> None:
    served = Served(tmp_path, request_timeout=0.01)
    reply = asyncio.run(served.send())
    assert reply.status == 504
    assert reply.json()["detail"]["error_type"] == "timeout_error"
    assert served.queue.state().depth == 0
    served.queue.close()
    assert served.queue.take(OneByOne()) is None


@pytest.mark.parametrize("header", ["Bearer s\xe9same", "bearer s\xe9same", "Bearer   s\xe9same "])
def test_the_right_key_is_let_in(tmp_path: Path, header: str) -> None:
    # Headers are bytes; this key is one byte a character on the wire, as the header sends it.
    served = Served(tmp_path, key="s\xe9same".encode("latin-1"))
    ask = served.send(headers={"authorization": header})
    assert asyncio.run(served.answering(good, ask)).status == 200


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Bearer wrong",
        "Basic key",
        "key",
        "Bearer \xff\x80",
        "Bearer key2",
    ],
)
@pytest.mark.parametrize("path", ["/v1/systemone", "/v1/systemone/batch", "/v1/models"])
def test_any_other_key_is_a_401(tmp_path: Path, header: str | None, path: str) -> None:
    served = Served(tmp_path, key=b"key")
    method = "GET" if path.endswith("models") else "POST"
    headers = {} if header is None else {"authorization": header}
    reply = asyncio.run(served.send(method, path, headers=headers))
    assert reply.status == 401
    assert reply.json()["detail"]["error_type"] == "authentication_error"
    assert reply.headers["www-authenticate"] == "Bearer"


def test_without_a_key_any_authorization_is_ignored(served: Served) -> None:
    ask = served.send(headers={"authorization": "Bearer \xff"})
    assert asyncio.run(served.answering(good, ask)).status == 200


def test_health_needs_no_key_and_names_the_instance(tmp_path: Path) -> None:
    reply = asyncio.run(Served(tmp_path, key=b"key").send("GET", "/health"))
    assert reply.status == 200
    body = reply.json()
    assert (body["status"], body["ready"], body["instance"]) == ("ready", True, "the-instance")


def test_health_of_a_stopping_worker_is_not_ready(served: Served) -> None:
    served.app.draining = True
    body = asyncio.run(served.send("GET", "/health")).json()
    assert (body["status"], body["ready"]) == ("draining", False)


def test_the_models_have_a_name_a_description_and_a_date(served: Served) -> None:
    (model,) = asyncio.run(served.send("GET", "/v1/models")).json()["models"]
    assert model["name"] == "tiny"
    assert model["description"]
    # Not asked of the folder again: the weights' file may be gone from its path by now.
    assert model["release_date"] == "2026-01-31"


@pytest.mark.parametrize(
    ("method", "path", "status", "body"),
    [
        ("GET", "/nothing", 404, {"detail": "Not Found"}),
        ("POST", "/v1/systemone/", 404, {"detail": "Not Found"}),
        ("GET", "/docs", 404, {"detail": "Not Found"}),
        ("GET", "/v1/systemone", 405, None),
        ("GET", "/v1/systemone/batch", 405, None),
        ("DELETE", "/health", 405, None),
    ],
)
def test_what_is_no_route_is_refused_in_the_clients_shape(
    served: Served, method: str, path: str, status: int, body: Any
) -> None:
    reply = asyncio.run(served.send(method, path))
    assert reply.status == status
    if body is not None:
        assert reply.json() == body
    else:
        assert reply.json()["detail"]["error_type"] == "invalid_request_error"
        assert reply.headers["allow"]


def test_a_form_with_files_is_a_415(served: Served) -> None:
    headers = {"content-type": "multipart/form-data; boundary=x"}
    assert asyncio.run(served.send(headers=headers)).status == 415


def test_a_body_over_the_limit_is_a_413(served: Served) -> None:
    assert asyncio.run(served.send(body=b" " * (2 * 1024 * 1024 + 1))).status == 413


def test_a_body_declared_far_over_the_limit_is_refused_unread(served: Served) -> None:
    reply = asyncio.run(served.send(body=b"", headers={"content-length": "99999999999"}))
    assert reply.status == 413
    assert reply.headers["connection"] == "close"


@pytest.mark.parametrize("path", ["/health", "/v1/models", "/v1/systemone", "/nothing"])
def test_every_response_has_both_request_ids(served: Served, path: str) -> None:
    reply = asyncio.run(served.send("GET", path))
    assert reply.headers["x-request-id"] == reply.headers["x-typesafe-request-id"]


def test_the_clients_request_id_is_kept(served: Served) -> None:
    reply = asyncio.run(served.send("GET", "/health", headers={"x-request-id": "req-1.a"}))
    assert reply.headers["x-request-id"] == reply.headers["x-typesafe-request-id"] == "req-1.a"


@pytest.mark.parametrize("bad", ["", "a b", "x" * 129, "caf\xe9"])
def test_a_request_id_that_no_log_should_hold_is_replaced(served: Served, bad: str) -> None:
    reply = asyncio.run(served.send("GET", "/health", headers={"x-request-id": bad}))
    assert reply.headers["x-request-id"] != bad
    assert len(reply.headers["x-request-id"]) == 32

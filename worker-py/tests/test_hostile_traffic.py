"""5,000 hostile bodies, sent to a real worker: no 500, no hang, no traceback."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from running_worker import Kept, Reply, RunningWorker
from test_hostile_bodies import anything, near_questions, near_requests

BODIES_A_TEST = 1250
SECONDS_UNTIL_IT_HANGS = 30.0

GOOD = json.dumps(
    {
        "model": "jev-latest",
        "state": ["Please refund", {"a": 1.5}],
        "states": ["a", {"b": None}],
        "questions": {
            "q": {"type": "score", "criteria": ["calm", "angry"]},
            "😡": {"type": "choice", "instructions": "?", "criteria": {"a": None, "b": ["c"]}},
        },
    }
).encode()

near_batches = st.fixed_dictionaries(
    {},
    optional={
        "states": st.lists(anything, max_size=4) | anything,
        "questions": st.dictionaries(st.text(max_size=6), near_questions | anything, max_size=2),
        "model": anything,
    },
)


@st.composite
def changed(draw: st.DrawFn) -> bytes:
    """A good body with a few bytes changed, left out or said twice."""
    body = bytearray(GOOD)
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, len(body) - 1))
        end = place + draw(st.integers(0, 9))
        body[place:end] = draw(st.binary(max_size=3)) or body[place:end] * 2
    return bytes(body)


bodies = st.one_of(
    near_requests.map(lambda value: json.dumps(value).encode()),
    near_batches.map(lambda value: json.dumps(value).encode()),
    changed(),
    st.binary(max_size=100),
)
codings = st.sampled_from([None, None, None, "gzip", "zstd", "deflate", "br", "gzip, zstd"])


class Attacked:
    """A worker that is sent bodies over one connection."""

    def __init__(self, worker: RunningWorker) -> None:
        self.worker = worker
        self.sent = 0
        # Made anew by itself after an answer that closes it.
        self.connection = worker.connect()
        self.connection.timeout = SECONDS_UNTIL_IT_HANGS

    def send(self, path: str, body: bytes, coding: str | None) -> Reply:
        headers = {} if coding is None else {"content-encoding": coding}
        self.connection.request("POST", path, body, headers)
        self.sent += 1
        return Reply(self.connection.getresponse())


@pytest.fixture(scope="module", params=["laya", "jev"])
def attacked(tiny: Path, kept: Kept, request: pytest.FixtureRequest) -> Iterator[Attacked]:
    with ExitStack() as stack:
        if request.param == "laya":
            # The one that all tests share speaks it.
            running = kept.running()
        else:
            flags = ["--model", str(tiny), "--dialect", request.param]
            running = stack.enter_context(RunningWorker(flags))
        attacked = Attacked(running)
        with closing(attacked.connection):
            yield attacked
        assert attacked.sent >= 2 * BODIES_A_TEST
        assert running.process.poll() is None
        assert running.ask("GET", "/health").json()["queue"]["depth"] == 0
        # A laya that is not the pinned one is told of at the start.
        served = [line for line in running.lines if line.get("phase") != "import"]
        assert [line for line in served if line.get("level") in ("error", "warning")] == []
        assert not [line for line in running.lines if "not_json" in line], "a traceback"


@pytest.mark.parametrize("path", ["/v1/systemone", "/v1/systemone/batch"])
@settings(
    max_examples=BODIES_A_TEST,
    deadline=None,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
)
@given(body=bodies, coding=codings)
def test_a_hostile_body_is_answered_or_refused_in_the_clients_shape(
    attacked: Attacked, path: str, body: bytes, coding: str | None
) -> None:
    reply = attacked.send(path, body, coding)
    assert reply.status == 200 or 400 <= reply.status < 500, reply.body
    answer = reply.json()
    if reply.status != 200:
        detail = answer["detail"]
        assert isinstance(detail, list) == (reply.status == 422)
    elif path.endswith("batch"):
        errors = [result["error"]["status"] for result in answer["results"] if "error" in result]
        assert all(400 <= status < 500 for status in errors)
    else:
        assert answer["answers"]

"""The published clients, unmodified, with nothing but their base URL and key changed.

The programs in `tests/clients` use each as its documentation does, with its retries off.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest

from tests.harness.client_programs import INSTALLED, ask_with
from tests.harness.decisions import EVERY_TYPE, REFUND, REFUND_TICKET
from tests.harness.fakes import FakeWorker
from tests.harness.omni_jev import OmniJev
from tests.harness.servers import Received, Reply, Server, forwarding

pytestmark = pytest.mark.skipif(
    not INSTALLED, reason="the clients are not installed: run `cargo xtask setup --dev`"
)

KEY = "a-key-of-the-tests"
DIALECTS = ("laya", "jev")
STATUSES = (401, 422, 413, 503)
# By kind of question, what every client gives of its answer.
VALUES = {
    "noul": ["noul"],
    "choice": ["choice", "probabilities"],
    "score": ["score", "probabilities"],
}
ZSTD_MAGIC = bytes.fromhex("28b52ffd")

# Most of what the worker answers 422 to, one client or another refuses by itself, but not this.
TOO_DEEP: Any = REFUND_TICKET
for _ in range(101):
    TOO_DEEP = [TOO_DEEP]


@dataclass(frozen=True)
class Client:
    """One client, and what its users expect of it."""

    program: str
    # By kind of question, the class of its answer, or the `type` of one that is a plain object.
    answers: dict[str, str]
    errors: dict[int, str]
    # The name that it sends for the model.
    model: str = "jev-latest"

    def state(self, text: str) -> Any:
        """Give what it sends for a state that is a text."""
        # The AI SDK makes a list of parts of it, and so asks about that list.
        parts = [{"type": "text", "text": text}]
        return parts if self.program == "ask_ai_sdk.mjs" else text


PYTHON_CLASSES = {"noul": "NoulAnswer", "choice": "ChoiceAnswer", "score": "ScoreAnswer"}
TYPESAFE_ERRORS = {
    401: "AuthenticationError",
    413: "APIError",
    422: "UnprocessableEntityError",
    503: "InternalServerError",
}
PREFIXED = {status: f"TypeSafe{name}" for status, name in TYPESAFE_ERRORS.items()}

CLIENTS = {
    "typesafe-sdk": Client("ask_typesafe_sdk.py", PYTHON_CLASSES, PREFIXED),
    "@typesafe-ai/sdk": Client(
        "ask_typesafe_sdk.mjs",
        {"noul": "noul", "choice": "choice", "score": "score"},
        TYPESAFE_ERRORS,
    ),
    "@ai-sdk/typesafe-ai": Client(
        "ask_ai_sdk.mjs",
        {"noul": "boolean", "choice": "choice", "score": "score"},
        dict.fromkeys(STATUSES, "AI_APICallError"),
    ),
    "langchain-typesafe": Client("ask_langchain_typesafe.py", PYTHON_CLASSES, PREFIXED),
    "litellm": Client(
        "ask_litellm.py",
        PYTHON_CLASSES,
        {
            401: "AuthenticationError",
            413: "BadRequestError",
            422: "BadRequestError",
            503: "ServiceUnavailableError",
        },
        # It knows three names for the model, and sends nothing else.
        model="english",
    ),
}


@dataclass(frozen=True)
class Frontends:
    """One for each dialect, with a key, and one whose worker is not ready."""

    ready: dict[str, OmniJev]
    starting: OmniJev


@pytest.fixture(scope="module")
def frontends(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Frontends]:
    with ExitStack() as stack:
        ready = {
            dialect: stack.enter_context(
                OmniJev(
                    worker_flags=["--model", "demo", "--alias", "english", "--dialect", dialect],
                    variables={"LAYA_API_KEY": KEY},
                )
            )
            for dialect in DIALECTS
        }
        folder = tmp_path_factory.mktemp("fake")
        starting = stack.enter_context(FakeWorker(folder, "load-for-ever"))
        for running in ready.values():
            running.wait_until_ready()
        starting.process.wait_for("it loads", lambda event: event["phase"] == "load")
        yield Frontends(ready, starting)


@dataclass(frozen=True)
class Tried:
    """A client, and what it made of the answers to all calls of these tests."""

    client: Client
    frontends: Frontends
    outcomes: dict[str, Any]


# All calls are made by one process: a client's import may take longer than all of them.
@pytest.fixture(scope="module", params=list(CLIENTS.values()), ids=list(CLIENTS))
def tried(request: pytest.FixtureRequest, frontends: Frontends) -> Tried:
    client: Client = request.param
    good = {"key": KEY, "state": REFUND_TICKET, "questions": EVERY_TYPE}
    calls = {dialect: {"url": it.url, **good} for dialect, it in frontends.ready.items()}
    laya = calls["laya"]
    calls["401"] = laya | {"key": "another-key"}
    calls["413"] = laya | {"state": "x" * 50_001}
    calls["422"] = laya | {"state": TOO_DEEP}
    calls["503"] = laya | {"url": frontends.starting.url}
    return Tried(client, frontends, ask_with(client.program, calls))


@pytest.mark.parametrize("dialect", DIALECTS)
def test_it_gets_typed_answers(tried: Tried, dialect: str) -> None:
    outcome = tried.outcomes[dialect]
    assert "error" not in outcome, outcome
    sent = {
        "model": tried.client.model,
        "state": tried.client.state(REFUND_TICKET),
        "questions": EVERY_TYPE,
    }
    server = tried.frontends.ready[dialect]
    headers = {"Authorization": f"Bearer {KEY}"}
    plain = server.ask("POST", "/v1/systemone", sent, headers=headers).json()
    assert set(outcome["answers"]) == set(EVERY_TYPE)
    for name, question in EVERY_TYPE.items():
        answer, expected = outcome["answers"][name], plain["answers"][name]
        assert answer.get("class", answer["type"]) == tried.client.answers[question["type"]]
        for field in VALUES[question["type"]]:
            got = answer["probability"] if answer["type"] == "boolean" else answer[field]
            assert got == pytest.approx(expected[field], abs=1e-3), (name, field)
    assert outcome["model"] == plain["model"]


@pytest.mark.parametrize("status", STATUSES)
def test_it_raises_its_own_error(tried: Tried, status: int) -> None:
    outcome = tried.outcomes[str(status)]
    assert outcome.get("error") == tried.client.errors[status], outcome
    assert outcome["status"] == status


def test_the_python_sdk_sends_zstd_and_is_answered(frontends: Frontends) -> None:
    received: list[Received] = []

    def record(request: Received, reply: Reply) -> Reply:
        received.append(request)
        return reply

    # Over the 1 KiB at which it begins to compress.
    state = "We cannot log in since this morning. " * 100
    call = {"key": KEY, "state": state, "questions": {"refund": REFUND}}
    with Server(forwarding(frontends.ready["laya"].address, record)) as hop:
        outcome = ask_with("ask_typesafe_sdk.py", {"long": {"url": hop.url, **call}})["long"]
    assert 0 <= outcome["answers"]["refund"]["noul"] <= 1
    (request,) = received
    assert request.headers["content-encoding"] == "zstd"
    assert request.body.startswith(ZSTD_MAGIC)
    assert len(request.body) < len(state) / 5

"""Asking for a lane, and which one answered."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.harness.client import Answer
from tests.harness.decisions import decision
from tests.harness.omni_jev import START_SECONDS, OmniJev


@contextmanager
def two_lanes(toml: str) -> Iterator[OmniJev]:
    """Serve lanes called main and quick; both are ready."""
    with OmniJev({"ADMIN_BIND": "127.0.0.1:0"}, toml=toml) as running:
        running.wait_until_ready()
        wait_for_lane(running, "main")
        wait_for_lane(running, "quick")
        yield running


def ask(
    running: OmniJev, body: object, lane: str | None = None, request_id: str | None = None
) -> Answer:
    """Ask for a decision, by this lane if one is named."""
    headers = {"x-omni-jev-lane": lane, "x-request-id": request_id}
    given = {name: value for name, value in headers.items() if value is not None}
    return running.ask("POST", "/v1/systemone", body, headers=given)


def wait_for_lane(running: OmniJev, lane: str) -> None:
    """Ask a lane until it answers."""
    deadline = time.monotonic() + START_SECONDS
    while (answer := ask(running, decision(), lane)).status != 200:
        assert answer.status == 503, answer.body
        assert time.monotonic() < deadline, running.process.log
        running.process.wait_for_news(0.2)


def route(answer: Answer) -> tuple[str | None, str | None]:
    """Give the lane of an answer, and the rule that chose it."""
    assert answer.status == 200, answer.body
    return answer.header("x-omni-jev-lane"), answer.header("x-omni-jev-routing-reason")

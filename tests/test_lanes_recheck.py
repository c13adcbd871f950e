"""A lane whose answers drift while it serves: real worker, real engine, real change of numbers."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.harness.client import Answer, assert_own_error
from tests.harness.client import ask as ask_at
from tests.harness.decisions import decision
from tests.harness.drift import overwritten
from tests.harness.lanes import ask, route, two_lanes
from tests.harness.omni_jev import START_SECONDS, OmniJev, binary, clean_environment

LANES = f"""
[[worker]]
name = "main"

[[worker]]
name = "quick"
python = "{sys.executable}"
args = "--model demo --engine onnx --recheck-parity 0.2 --artifacts artifacts --compile-cache cache"
takes = "short-single"
"""


@pytest.fixture(scope="module")
def lanes() -> Iterator[OmniJev]:
    """Start a lane of torch for everything, and one of onnx for short requests of one question."""
    with two_lanes(LANES) as running:
        yield running


def eventually(running: OmniJev, is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not is_so():
        assert time.monotonic() < deadline, running.process.log
        running.process.wait_for_news(0.1)


def answers(answer: Answer) -> Any:
    return answer.json()["answers"]


def trouble(running: OmniJev) -> dict[str, str]:
    """What the metrics say of the breaker of the lane of onnx: each name that is set."""
    event = running.process.wait_for(
        "the admin listener listens",
        lambda event: event["message"] == "listening" and event["listener"] == "admin",
    )
    metrics = ask_at(str(event["address"]), "GET", "/metrics").body.decode()
    found = {}
    for line in metrics.splitlines():
        for kind, label in (("breaker", "state"), ("trouble", "trouble")):
            start = f'omni_jev_frontend_lane_{kind}{{lane="quick",{label}="'
            if line.startswith(start) and float(line.rpartition(" ")[2]) == 1:
                found[kind] = line.removeprefix(start).partition('"')[0]
    return found


def why_degraded(running: OmniJev) -> str | None:
    shown = subprocess.run(
        [binary(), "worker", "status", "quick", "--json"],
        env=clean_environment(running.scratch) | {"XDG_RUNTIME_DIR": str(running.scratch)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    said: str | None = json.loads(shown.stdout)[0]["degraded"]
    return said


def test_a_lane_that_fails_a_recheck_loses_its_traffic_and_has_it_again_when_it_recovers(
    lanes: OmniJev,
) -> None:
    expected = answers(ask(lanes, decision(), "main"))
    assert answers(ask(lanes, decision(), "quick")) == expected
    with overwritten(lanes.scratch / "artifacts"):
        lost = {"breaker": "open", "trouble": "parity"}
        eventually(lanes, lambda: trouble(lanes) == lost)
        eventually(lanes, lambda: route(ask(lanes, decision())) == ("main", "breaker_open"))
        for _ in range(20):
            answer = ask(lanes, decision())
            assert route(answer)[0] == "main"
            assert answers(answer) == expected
        refused = ask(lanes, decision(), "quick")
        assert_own_error(refused, 503, "service_unavailable")
        assert "agree with the reference" in refused.json()["detail"]["message"]
        eventually(lanes, lambda: "a probability differs by" in (why_degraded(lanes) or ""))
    eventually(lanes, lambda: trouble(lanes) != lost)
    assert answers(ask(lanes, decision(), "quick")) == expected
    eventually(lanes, lambda: why_degraded(lanes) is None)

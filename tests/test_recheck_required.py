"""A worker that insists on parity and loses it: the supervisor starts another, which proves it."""

import itertools

from tests.harness.decisions import decision
from tests.harness.drift import overwritten
from tests.harness.omni_jev import START_SECONDS, OmniJev

FLAGS = (
    *("--model", "demo", "--engine", "onnx", "--recheck-parity", "0.2", "--require-parity"),
    *("--artifacts", "artifacts", "--compile-cache", "cache"),
)
PROVED = "its answers are those of full precision on the CPU"


def test_a_worker_that_insists_on_parity_and_loses_it_is_replaced_by_one_that_has_it() -> None:
    with OmniJev(worker_flags=FLAGS) as running:
        running.wait_until_ready()
        expected = running.decide(decision()).json()["answers"]
        first = running.worker().pid
        with overwritten(running.scratch / "artifacts"):
            running.process.wait_for(
                "the worker says why it ends",
                lambda event: "--require-parity: a probability differs" in str(event["message"]),
                START_SECONDS,
            )
        proved = itertools.count(1)
        running.process.wait_for(
            "the next one has run the gate, whatever was proved",
            # Not where its last words are quoted, as in a start that takes long.
            lambda event: str(event["message"]).endswith(PROVED) and next(proved) == 2,
            START_SECONDS,
        )
        running.wait_until_ready()
        assert running.worker().pid != first
        assert running.decide(decision()).json()["answers"] == expected

"""The way back to a device that was lost, for the supervisor alone."""

import asyncio
import threading
from concurrent.futures import Future
from datetime import date
from pathlib import Path
from typing import Any, cast

import pytest

from omni_jev_worker.buckets import EXACT
from omni_jev_worker.checkpoints import Checkpoint
from omni_jev_worker.engine import Engine
from omni_jev_worker.fallback import Fallback
from omni_jev_worker.inference import Inference
from omni_jev_worker.loader import Warm
from omni_jev_worker.model import Model
from omni_jev_worker.queue import Errand, Job, RowQueue
from omni_jev_worker.tuner import TuningState
from taking import OneByOne, take_job
from test_app import Served

PATH = "/control/recover-device"
TOKEN = {"x-omni-jev-control": "the-token"}


class FakeDeviceModel:
    """A model that lost its device, and may or may not come back to it."""

    def __init__(self, fault: RuntimeError | None = None) -> None:
        self.device = "cpu"
        self.engine = "torch"
        self.artifact = None
        self.weights_dtype = "torch.float32"
        self.autocast_dtype = None
        self.mps_amp_min_rows = 5
        self.window = 128
        self.device_bytes = 0
        self.lengths_seen = 0
        self.is_packed = self.is_tuned = self.runs_compiled = self.takes_any_lengths = False
        self.compiled_graphs = self.recorded_graphs = 0
        self._fault = fault

    def return_to_device(self) -> None:
        if self._fault is not None:
            raise self._fault
        self.device = "mps"


def engine(model: FakeDeviceModel, queue: RowQueue) -> Engine:
    made = Engine(
        Checkpoint("tiny", "tiny", None, Path(), date(2026, 1, 31)),
        queue,
        device="mps",
        require_device=False,
        threads=1,
    )
    there = cast("Model", model)
    inference = Inference(there, EXACT, Fallback())
    made._loaded = Warm(there, "mps", "mps", TuningState(), EXACT, inference)
    made._publish()
    return made


def run_errand(queue: RowQueue) -> None:
    errand = queue.take(OneByOne())
    assert isinstance(errand, Errand)
    errand.result.set_result(errand.work())


def test_a_model_that_comes_back_is_published_as_no_mismatch() -> None:
    queue = RowQueue(4)
    made = engine(FakeDeviceModel(), queue)
    assert made.snapshot.model.device_mismatch
    result = made.recover_device()
    run_errand(queue)
    assert result.result(10) is None
    assert made.snapshot.model.device == "mps"
    assert not made.snapshot.model.device_mismatch


def test_a_model_that_cannot_come_back_says_why_and_serves_on() -> None:
    queue = RowQueue(4)
    made = engine(FakeDeviceModel(RuntimeError("MPS backend out of memory\nmore")), queue)
    result = made.recover_device()
    run_errand(queue)
    assert result.result(10) == "MPS backend out of memory"
    assert made.snapshot.model.device_mismatch


def test_what_waits_is_answered_before_the_errand() -> None:
    queue = RowQueue(4)
    queue.put(Job(checkpoint="tiny", encoded=None, lengths=(7,)))
    queue.put(Errand(lambda: None))
    take_job(queue)
    assert isinstance(queue.take(OneByOne()), Errand)


@pytest.mark.parametrize(
    ("token", "headers"),
    [
        (None, {}),
        (None, TOKEN),
        (None, {"x-omni-jev-control": ""}),
        (b"the-token", {}),
        (b"the-token", {"x-omni-jev-control": "another"}),
    ],
)
def test_without_the_supervisors_token_there_is_no_such_route(
    tmp_path: Path, token: bytes | None, headers: dict[str, str]
) -> None:
    served = Served(tmp_path, control_token=token)
    reply = asyncio.run(served.send("POST", PATH, b"", headers))
    assert reply.status == 404


@pytest.mark.parametrize(
    ("reason", "body"),
    [
        (None, {"recovered": True, "reason": None}),
        ("no memory", {"recovered": False, "reason": "no memory"}),
    ],
)
def test_the_supervisor_is_told_what_came_of_it(
    tmp_path: Path, reason: str | None, body: dict[str, Any]
) -> None:
    served = Served(tmp_path, control_token=b"the-token")
    done: Future[str | None] = Future()
    threading.Timer(0.01, done.set_result, [reason]).start()
    served.engine.recovery = done
    reply = asyncio.run(served.send("POST", PATH, b"", TOKEN))
    assert (reply.status, reply.json()) == (200, body)

"""The parity rows again while the worker serves: what drifts is told, and so is its recovery.

ONNX Runtime maps an artifact's numbers, as they are on the disk. What is written over them under a
running worker changes what it answers, in truth and without a hook, until they are as they were.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from artifacts_of import adopting, key_of
from omni_jev_worker import checkpoints, health
from omni_jev_worker.artifacts import manifest as manifests
from omni_jev_worker.artifacts.store import Store
from omni_jev_worker.buckets import EXACT
from omni_jev_worker.engines.ort.session import Session
from omni_jev_worker.exits import FAILED
from omni_jev_worker.fallback import Fallback
from omni_jev_worker.health import Others
from omni_jev_worker.inference import Inference
from omni_jev_worker.memory import OutOfMemory
from omni_jev_worker.model import Model
from omni_jev_worker.network.network import Network
from omni_jev_worker.parity import Reference, Report, take_reference
from omni_jev_worker.recheck import Recheck
from omni_jev_worker.scores import NotFinite, Scores
from omni_jev_worker.tuner import Tuner
from omni_jev_worker.tuning import Tuning
from running_worker import LONG, RunningWorker
from started_engine import NOUL, Started, starting

DECISION = {"state": "please refund the duplicate charge", "questions": NOUL}


@contextmanager
def overwritten(numbers: Path) -> Iterator[None]:
    """Have other numbers in an artifact's file, in place, and then the right ones again."""
    right = numbers.read_bytes()
    wrong = np.frombuffer(right, np.float32)[::-1].tobytes()
    for content in (wrong, right):
        with numbers.open("r+b") as file:
            file.write(content)
        if content is wrong:
            yield


def numbers_in(folder: Path) -> Path:
    (found,) = folder.glob("*/onnx-any-*/weights.bin")
    return found


def flags(folder: Path, *more: str) -> list[str]:
    return [
        *("--model", "demo", "--engine", "onnx", "--threads", "1", "--recheck-parity", "0.2"),
        *("--artifacts", str(folder / "artifacts"), "--compile-cache", str(folder / "cache")),
        *more,
    ]


def wait_for_health(worker: RunningWorker, is_so: Callable[[dict[str, Any]], bool]) -> Any:
    end = time.monotonic() + LONG
    while not is_so(told := worker.ask("GET", "/health").json()):
        assert time.monotonic() < end, told
        assert worker.process.poll() is None, worker.lines
        time.sleep(0.02)
    return told


def said(worker: RunningWorker, level: str, text: str) -> list[dict[str, Any]]:
    return [line for line in worker.lines if line.get("level") == level and text in line["message"]]


def test_a_worker_whose_answers_drift_says_so_in_health_and_says_when_they_are_right_again(
    tmp_path: Path,
) -> None:
    with RunningWorker(flags(tmp_path)) as worker:
        first = wait_for_health(worker, lambda told: told["parity"]["rechecks"] >= 2)
        assert first["status"] == "ready"
        assert first["parity"]["passed"]
        assert first["parity"]["served"]
        assert first["recheck"] == {"every_s": 0.2, "nothing": None}
        right = worker.decide(DECISION).json()["answers"]
        with overwritten(numbers_in(tmp_path / "artifacts")):
            lost = wait_for_health(worker, lambda told: not told["parity"]["passed"])
            assert lost["status"] == "degraded"
            assert lost["ready"]
            assert "differs by" in lost["parity"]["fault"]
            assert lost["parity"]["row"] in lost["tuning"]["reasons"][0]
            assert lost["parity"]["checked_at"] >= first["parity"]["checked_at"]
            assert lost["models"]["demo"]["parity"]["passed"] is False
            later = lost["parity"]["rechecks"] + 2
            wait_for_health(worker, lambda told: told["parity"]["rechecks"] >= later)
            assert worker.decide(DECISION).json()["answers"] != right
        back = wait_for_health(worker, lambda told: bool(told["parity"]["passed"]))
        assert back["status"] == "ready"
        assert back["tuning"]["reasons"] == []
        assert worker.decide(DECISION).json()["answers"] == right
        assert len(said(worker, "error", "are no longer those of full precision")) == 1
        assert len(said(worker, "info", "as before")) == 1


def test_what_is_insisted_on_and_drifts_ends_the_worker_for_another_start_that_proves_it_again(
    tmp_path: Path,
) -> None:
    with RunningWorker(flags(tmp_path, "--require-parity")) as worker:
        numbers = numbers_in(tmp_path / "artifacts")
        with overwritten(numbers):
            # Not 78: another process may be all that it takes, and a supervisor starts one.
            assert worker.wait_for_end() == FAILED
        assert worker.lines[-1]["level"] == "error"
        assert worker.lines[-1]["message"].startswith("--require-parity: a probability differs")
    proof = manifests.read(numbers.parent).proof
    assert proof is not None
    assert proof["passed"] is False
    with RunningWorker(flags(tmp_path, "--require-parity")) as worker:
        assert said(worker, "info", "its answers are those of full precision on the CPU")
        told = wait_for_health(worker, lambda told: told["parity"]["rechecks"] >= 1)
        assert told["status"] == "ready"


def body(started: Started) -> dict[str, Any]:
    started.settle()
    return health.report(
        started.engine.snapshot, started.queue.state(), Others(), instance="i", draining=False
    )


def test_where_the_gate_left_layas_own_pass_nothing_is_checked_and_health_does_not_say_passed(
    tiny: Path,
) -> None:
    # The CPU refuses an option for GPUs.
    with starting(tiny, tuner=Tuner(Tuning("fp16")), recheck=0.1) as started:
        told = body(started)
    assert told["parity"] is None
    assert told["recheck"]["every_s"] == 0.1
    assert "nothing that the parity gate covers runs" in told["recheck"]["nothing"]


def test_torch_in_half_precision_that_drifts_is_told_as_what_is_served(
    calm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = Network.__call__

    def wrong(self: Network, *arguments: Any) -> Any:
        logits, act = call(self, *arguments)
        return logits.flip(-1) * 9, act

    tuner = Tuner(Tuning("bf16"), runs_anywhere=True)
    with starting(calm, tuner=tuner, recheck=0.1) as started:
        assert body(started)["parity"]["passed"]
        monkeypatch.setattr(Network, "__call__", wrong)
        wait_for(lambda: started.engine.snapshot.recheck.fault is not None)
        told = body(started)
        assert (told["engine"], told["status"]) == ("torch", "degraded")
        # By this the frontend tells it from a gate that left laya's own pass in place.
        assert (told["parity"]["served"], told["parity"]["passed"]) == (True, False)
        assert told["tuning"]["reasons"][0].startswith("--weights bf16, checked again: ")
        monkeypatch.setattr(Network, "__call__", call)
        wait_for(lambda: started.engine.snapshot.recheck.fault is None)
        assert body(started)["status"] == "ready"


@pytest.mark.parametrize(
    ("parity", "status"),
    [
        (None, "ready"),
        ({"served": True, "passed": True}, "ready"),
        ({"served": False, "passed": False}, "ready"),
        ({"served": True, "passed": False}, "degraded"),
    ],
)
def test_a_checkpoint_beside_the_default_that_drifts_is_told_too(
    tiny: Path, parity: Any, status: str
) -> None:
    with starting(tiny) as started:
        others = Others(models={"multilingual": {"device": "cpu", "parity": parity}})
        state = started.queue.state()
        told = health.report(started.engine.snapshot, state, others, instance="i", draining=False)
    assert told["status"] == status
    assert told["models"]["multilingual"]["parity"] == parity


def test_a_proved_artifact_is_checked_with_the_answers_that_were_kept_and_never_with_its_own(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path)
    with starting(tiny, tuner=adopting(tiny, store)):
        pass

    def otherwise(self: Session, items: Sequence[Any]) -> Scores:
        scores = run(self, items)
        return Scores(scores.logits[:, ::-1].copy(), scores.act)

    run = Session.__call__
    # From the first row on it is wrong: whatever it gives itself would agree with itself.
    monkeypatch.setattr(Session, "__call__", otherwise)
    with starting(tiny, tuner=adopting(tiny, store, rechecks=True), recheck=0.1) as started:
        wait_for(lambda: started.engine.snapshot.recheck.count > 0)
        told = body(started)
    assert told["parity"]["passed"] is False
    assert told["status"] == "degraded"
    proof = manifests.read(store.folder(key_of(tiny))).proof
    assert proof is not None
    assert proof["passed"] is False


def wait_for(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + LONG
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_whoever_asks_during_a_check_waits_for_one_row_and_no_more(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Session.__call__
    begun, go_on, passes = threading.Event(), threading.Event(), list[list[int]]()

    def told(self: Session, items: Sequence[Any]) -> Scores:
        passes.append([len(item["ids"]) for item in items])
        begun.set()
        assert go_on.wait(LONG)
        return run(self, items)

    tuner = adopting(tiny, Store(tmp_path), rechecks=True)
    with starting(tiny, tuner=tuner, recheck=0.1) as started:
        job = started.job("please refund the duplicate charge")
        monkeypatch.setattr(Session, "__call__", told)
        assert begun.wait(LONG)
        started.queue.put(job)
        ahead = len(passes)
        go_on.set()
        job.result.result(LONG)
        assert passes[ahead] == list(job.lengths)
        count = started.engine.snapshot.recheck.count + 1
        wait_for(lambda: started.engine.snapshot.recheck.count > count)
        # None of a check's passes is longer than its longest row.
        assert max(map(sum, passes)) == started.model.window


@pytest.fixture(scope="module")
def model(tiny: Path) -> Model:
    return Model(checkpoints.from_folder(str(tiny)), "cpu")


@pytest.fixture(scope="module")
def reference(model: Model) -> Reference:
    return take_reference(model)[0]


def unexpected(report: Report) -> None:
    raise AssertionError(report.fault)


@pytest.mark.parametrize(
    ("fault", "words"),
    [(NotFinite(), "not finite"), (OutOfMemory("none left"), "a row cannot be run: OutOfMemory")],
)
def test_a_row_that_gives_no_numbers_fails_the_check(
    model: Model, reference: Reference, fault: Exception, words: str
) -> None:
    faults: list[Report] = []
    check = Recheck(60, model, reference, lambda batch: [fault] * len(batch), failed=faults.append)
    check.do(0.0)
    assert check.state.count == 1
    assert words in str(check.state.fault)
    check.do(0.0)
    assert len(faults) == 1, "a fault that goes on is told once"


def test_the_check_goes_the_way_of_requests_and_passes_where_nothing_has_changed(
    model: Model, reference: Reference
) -> None:
    check = Recheck(
        60, model, reference, Inference(model, EXACT, Fallback()).run, failed=unexpected
    )
    while not check.state.count:
        check.do(0.0)
    assert check.state.fault is None
    assert check.state.report is not None
    assert len(check.state.report.rows) == len(reference.rows)
    assert any(row.together for row in check.state.report.rows)


def test_a_check_waits_for_a_quiet_moment_but_not_for_ever(
    model: Model, reference: Reference
) -> None:
    check = Recheck(60, model, reference, lambda _: [], failed=unexpected)
    due = time.monotonic() + 60
    assert 59 < check.due_in(due - 60, 0.0) <= 60.1
    just_served = due + 1
    assert 0 < check.due_in(due + 1, just_served) <= 0.1
    assert check.due_in(due + 2, just_served) <= 0
    late = due + 61
    assert check.due_in(late, served_at=late) <= 0


def test_a_check_that_began_on_another_device_begins_anew(
    model: Model, reference: Reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    lengths = []

    def run(batch: Sequence[Any]) -> list[Any]:
        lengths.append(batch[0].tokens)
        return list(model.infer(batch))

    check = Recheck(60, model, reference, run, failed=unexpected)
    check.do(0.0)
    monkeypatch.setattr(Model, "device", "elsewhere")
    check.do(0.0)
    first = reference.rows[0].tokens
    assert lengths == [first, first]

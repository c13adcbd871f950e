"""Half precision and compiled on a real CUDA device: equal, bounded, and honest when it fails."""

import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from compiler_processes import compiler_processes
from omni_jev_worker import checkpoints
from omni_jev_worker.model import Model
from omni_jev_worker.queue import Errand
from omni_jev_worker.tuner import Tuner
from omni_jev_worker.tuning import Tuning
from running_worker import RunningWorker
from started_engine import LONG, NOUL, Started, starting
from test_cuda import CLOSE, STATE, leave, probability
from test_successor import Clients, health_when

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device"),
]

ASKED = Tuning("fp16", compiled=True)
SOAK_SECONDS = float(os.environ.get("OMNI_JEV_SOAK_SECONDS", "600"))


@pytest.fixture(scope="module")
def demo() -> Path:
    return checkpoints.find_demo({}).folder


@pytest.fixture(scope="module")
def tuned(demo: Path) -> Iterator[Started]:
    torch.cuda.set_per_process_memory_fraction(1.0)
    with starting(demo, device="cuda", require_device=True, tuner=Tuner(ASKED)) as made:
        yield made
    torch.cuda.set_per_process_memory_fraction(1.0)


@pytest.fixture(scope="module")
def on_cpu(demo: Path) -> Model:
    return Model(checkpoints.from_folder(str(demo)), "cpu")


def right(on_cpu: Model, state: Any, questions: Any = NOUL) -> Any:
    encoded = on_cpu.encode(state, questions)
    scores = on_cpu.infer([encoded])[0]
    assert not isinstance(scores, Exception)
    return on_cpu.decode(encoded, scores)


def words(count: int) -> str:
    return " ".join(STATE.split()[:count])


def choice_of(options: int) -> Any:
    criteria = {f"option {n}": None for n in range(options)}
    return {"q": {"type": "choice", "instructions": "Which?", "criteria": criteria}}


def assert_close(found: Any, expected: Any) -> None:
    for option, wanted in expected["q"]["probabilities"].items():
        assert abs(found["q"]["probabilities"][option] - wanted) <= CLOSE


class Asking:
    """Threads that ask for texts at random until they are to end; each answer is compared."""

    def __init__(self, asked: Started, on_cpu: Model, texts: list[str], *, threads: int) -> None:
        self._asked = asked
        self._texts = [(text, probability(right(on_cpu, text))) for text in texts]
        self._over = threading.Event()
        self.wrong: list[tuple[str, float]] = []
        self.answered = [0] * threads
        self._threads = [
            threading.Thread(target=self._ask, args=(number,), daemon=True)
            for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def _ask(self, number: int) -> None:
        turns = random.Random(number)
        while not self._over.is_set():
            text, expected = turns.choice(self._texts)
            found = probability(self._asked.ask(text))
            self.answered[number] += 1
            if abs(found - expected) > CLOSE:
                self.wrong.append((text, found))

    def end(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()


def test_what_was_asked_for_runs_and_all_shapes_are_there(tuned: Started) -> None:
    now = tuned.engine.snapshot
    assert now.tuning.given == ASKED, now.tuning.reasons
    assert now.compiled.active
    assert now.compiled.recorded > 40
    assert now.model.weights_dtype == "torch.float16"
    assert now.tuning.parity is not None
    assert now.tuning.parity.largest < 0.005


def test_none_of_the_compilers_processes_stays(tuned: Started) -> None:
    assert tuned.engine.snapshot.compiled.active
    for thread in threading.enumerate():
        if thread.name == "compiler's end":
            thread.join(LONG)
    assert not compiler_processes()


def test_every_length_has_the_answer_of_full_precision_and_none_is_compiled_anew(
    tuned: Started, on_cpu: Model
) -> None:
    before = tuned.engine.snapshot.compiled.graphs
    for count in (0, 1, 5, 20, 33, 60, 61, 100, 150, 250, 400, 900):
        found = probability(tuned.ask(words(count)))
        assert abs(found - probability(right(on_cpu, words(count)))) <= CLOSE
    tuned.settle()
    assert tuned.engine.snapshot.compiled.graphs == before


def test_rows_together_have_the_answers_that_each_has_alone(tuned: Started) -> None:
    counts = [0, 3, 20, 61, 100, 180, 400] * 9
    alone = [probability(tuned.ask(words(count))) for count in counts[:7]] * 9
    jobs = [tuned.job(words(count)) for count in counts]
    with tuned.held():
        for job in jobs:
            tuned.queue.put(job)
    together = [probability(tuned.answers(job)) for job in jobs]
    assert together == pytest.approx(alone, abs=0.005)


def test_the_device_holds_no_more_after_every_length_than_before(tuned: Started) -> None:
    for count in range(0, 420, 5):
        tuned.ask(words(count))
    tuned.settle()
    held = tuned.engine.snapshot.memory.device_bytes
    for count in range(0, 420, 3):
        tuned.ask(words(count))
    tuned.settle()
    assert tuned.engine.snapshot.memory.device_bytes <= held + 64 * 2**20


def test_a_shape_that_no_memory_is_left_for_is_answered_on_the_cpu_and_the_model_stays(
    tuned: Started, on_cpu: Model
) -> None:
    before = tuned.engine.snapshot.fallback.count
    # So many options that no shape was recorded for them.
    asked, others = choice_of(40), choice_of(100)
    expected = right(on_cpu, words(300), asked)
    recorded = tuned.model.recorded_graphs
    leave(0)
    found = tuned.ask(words(300), asked)
    torch.cuda.set_per_process_memory_fraction(1.0)
    assert_close(found, expected)
    held = tuned.model.recorded_graphs
    # A recording that broke off keeps no other from being made.
    expected = right(on_cpu, words(300), others)
    assert_close(tuned.ask(words(300), others), expected)
    assert tuned.model.recorded_graphs == held + 1
    tuned.settle()
    now = tuned.engine.snapshot
    assert now.model.device == "cuda"
    assert now.fallback.since is None
    # Answered on the CPU, or by a pass that was not recorded.
    assert now.fallback.count > before or held == recorded
    assert abs(probability(tuned.ask(STATE)) - probability(right(on_cpu, STATE))) <= CLOSE
    tuned.settle()
    assert tuned.engine.snapshot.compiled.active


def test_a_lost_device_is_served_uncompiled_from_the_cpu_and_comes_back_as_it_was(
    tuned: Started, on_cpu: Model
) -> None:
    errand = Errand(tuned.model.move_to_cpu)
    tuned.queue.put(errand)
    errand.result.result(LONG)
    assert abs(probability(tuned.ask(STATE)) - probability(right(on_cpu, STATE))) <= 1e-3
    tuned.settle()
    lost = tuned.engine.snapshot
    assert (lost.model.device, lost.model.device_mismatch) == ("cpu", True)
    assert not lost.compiled.active
    assert tuned.engine.recover_device().result(LONG) is None
    assert abs(probability(tuned.ask(STATE)) - probability(right(on_cpu, STATE))) <= CLOSE
    tuned.settle()
    back = tuned.engine.snapshot
    assert (back.model.device, back.model.device_mismatch) == ("cuda", False)
    assert back.compiled.active
    assert back.model.weights_dtype == "torch.float16"


def test_without_a_c_compiler_the_model_runs_uncompiled_and_says_so(
    demo: Path, tmp_path: Path
) -> None:
    environment = os.environ | {
        "CC": "/nonexistent/cc",
        "CXX": "/nonexistent/c++",
        "PATH": "/nonexistent",
        "PYTHONPATH": os.pathsep.join(sys.path),
        "XDG_CACHE_HOME": str(tmp_path),
    }
    flags = ["--device", "cuda", "--compile", "--weights", "fp16", "--model", str(demo)]
    command = [sys.executable, "-m", "omni_jev_worker", "parity", *flags]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 78, done.stderr
    assert "the compiler failed" in done.stdout
    assert "runs with: --weights fp16" in done.stdout
    insisted = [*command, "--require-compile"]
    done = subprocess.run(insisted, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 78
    assert "--require-compile" in done.stderr


def test_compiled_in_the_background_it_serves_at_once_and_gives_no_wrong_answer(
    demo: Path, tmp_path: Path
) -> None:
    flags = ["--device", "cuda", "--require-device", "--compile", "--weights", "fp16"]
    cache = ["--compile-cache", str(tmp_path), "--compile-in-background"]
    with RunningWorker([*flags, *cache, "--model", str(demo)]) as worker:
        assert not worker.ask("GET", "/health").json()["compile"]["active"]
        clients = Clients(worker)
        compiled = health_when(worker, lambda told: told["compile"]["active"])
        clients.end()
        assert not clients.wrong
        assert len(clients.answers) > 10
        assert max(clients.answers) - min(clients.answers) <= CLOSE
        assert compiled["status"] == "ready"
        assert compiled["device"] == "cuda"
        assert compiled["parity"]["passed"]
        worker.process.terminate()
        assert worker.wait_for_end() == 0


def test_shapes_that_are_recorded_while_other_answers_leave_break_no_pass(
    tuned: Started, on_cpu: Model
) -> None:
    texts = [words(count) for count in range(40)]
    asking = Asking(tuned, on_cpu, texts, threads=8)
    before = tuned.model.recorded_graphs
    try:
        # So many options that each length is recorded anew.
        for options in (30, 100):
            for count in range(0, 420, 14):
                asked = choice_of(options)
                assert_close(tuned.ask(words(count), asked), right(on_cpu, words(count), asked))
    finally:
        asking.end()
    tuned.settle()
    assert not asking.wrong
    assert tuned.model.recorded_graphs >= before + 8
    assert tuned.engine.snapshot.compiled.active


def test_minutes_of_all_lengths_from_many_sides_give_no_wrong_answer_and_hold_no_more_memory(
    tuned: Started, on_cpu: Model
) -> None:
    """The soak: ten minutes, or as long as OMNI_JEV_SOAK_SECONDS says."""
    chance = random.Random(7)
    texts = [words(chance.randrange(0, 420)) for _ in range(200)]
    asking = Asking(tuned, on_cpu, texts, threads=16)
    first_part = min(60.0, SOAK_SECONDS / 4)
    time.sleep(first_part)
    held = tuned.engine.snapshot.memory.device_bytes
    time.sleep(SOAK_SECONDS - first_part)
    asking.end()
    tuned.settle()
    now = tuned.engine.snapshot
    answered = asking.answered
    print(f"{sum(answered)} answers in {SOAK_SECONDS:g} s, device memory {now.memory.device_bytes}")
    assert not asking.wrong
    assert min(answered) > 0
    assert now.memory.device_bytes <= held + 64 * 2**20
    assert now.compiled.active
    assert now.compiled.graphs == now.tuning.graphs

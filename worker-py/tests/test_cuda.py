"""What only a CUDA device can show: memory that really runs out, and comes back."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from omni_jev_worker import checkpoints
from omni_jev_worker.model import Model
from started_engine import NOUL, Started, starting

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device"),
]

ROWS = 64
# Cut to the window, so every row is as long as rows get.
STATE = "The parcel came late and the box was open. " * 100
# Autocast's halves, against the CPU's full precision.
CLOSE = 0.02


@pytest.fixture(scope="module")
def demo() -> Path:
    return checkpoints.find_demo({}).folder


@pytest.fixture
def on_cuda(demo: Path) -> Iterator[Started]:
    torch.cuda.set_per_process_memory_fraction(1.0)
    with starting(demo, device="cuda", require_device=True) as made:
        yield made
    torch.cuda.set_per_process_memory_fraction(1.0)


def leave(size: int) -> None:
    """Let torch have so many bytes of the device's memory beyond what is in use."""
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + size) / total)


def probability(answers: Any) -> float:
    return float(answers["refund"]["noul"])


def right(demo: Path) -> float:
    model = Model(checkpoints.from_folder(str(demo)), "cpu")
    encoded = model.encode(STATE, NOUL)
    scores = model.infer([encoded])[0]
    assert not isinstance(scores, Exception)
    return probability(model.decode(encoded, scores))


def together(started: Started) -> list[float]:
    """Ask for as many rows as a batch holds, at once."""
    jobs = [started.job(STATE) for _ in range(ROWS)]
    with started.held():
        for job in jobs:
            started.queue.put(job)
    found = [probability(started.answers(job)) for job in jobs]
    started.settle()
    return found


def test_a_batch_that_does_not_fit_is_answered_in_parts_on_the_device(
    on_cuda: Started, demo: Path
) -> None:
    expected = right(demo)
    leave(24 * 2**20)
    assert all(abs(each - expected) <= CLOSE for each in together(on_cuda))
    told = on_cuda.engine.snapshot.fallback
    assert told.splits >= 1
    assert told.count == 0
    assert "out of memory" in (told.last_reason or "").lower()
    assert on_cuda.engine.snapshot.model.device == "cuda"


def test_rows_that_do_not_fit_alone_are_answered_on_the_cpu_and_the_model_stays_on_the_device(
    on_cuda: Started, demo: Path
) -> None:
    expected = right(demo)
    leave(2 * 2**20)
    job = on_cuda.job(STATE)
    on_cuda.queue.put(job)
    assert abs(probability(on_cuda.answers(job)) - expected) <= 1e-3
    on_cuda.settle()
    told = on_cuda.engine.snapshot.fallback
    assert told.count == 1
    assert told.since is None
    assert on_cuda.engine.snapshot.model.device == "cuda"
    torch.cuda.set_per_process_memory_fraction(1.0)
    assert all(abs(each - expected) <= CLOSE for each in together(on_cuda))
    assert on_cuda.engine.snapshot.fallback.count == 1


def test_rows_of_unlike_lengths_together_have_the_answers_that_each_has_alone(
    on_cuda: Started,
) -> None:
    words = STATE.split()
    states = [" ".join(words[:length]) for length in (0, 3, 20, 61, 100, 180, 400)]
    alone = [probability(on_cuda.ask(state)) for state in states]
    jobs = [on_cuda.job(state) for state in states]
    with on_cuda.held():
        for job in jobs:
            on_cuda.queue.put(job)
    together = [probability(on_cuda.answers(job)) for job in jobs]
    assert together == pytest.approx(alone, abs=0.01)


def test_padding_to_buckets_changes_no_answer_and_keeps_the_memory(on_cuda: Started) -> None:
    # Laya's masks give numbers that are not finite for padded rows on some devices.
    assert on_cuda.engine.snapshot.length_buckets
    words = STATE.split()
    warm = on_cuda.engine.snapshot.memory
    for length in range(0, 400, 7):
        answers = on_cuda.ask(" ".join(words[:length]))
        assert 0 <= probability(answers) <= 1
    on_cuda.settle()
    held = on_cuda.engine.snapshot.memory
    buckets = len(on_cuda.engine.snapshot.length_buckets)
    assert held.lengths_seen <= warm.lengths_seen + buckets
    for length in range(0, 400, 3):
        on_cuda.ask(" ".join(words[:length]))
    on_cuda.settle()
    assert on_cuda.engine.snapshot.memory.lengths_seen == held.lengths_seen
    assert on_cuda.engine.snapshot.memory.device_bytes <= held.device_bytes + 64 * 2**20

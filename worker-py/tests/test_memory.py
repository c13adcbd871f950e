"""What is counted, when memory is released, and what torch's shortage of it looks like."""

import weakref

import pytest
import torch

from omni_jev_worker import memory
from omni_jev_worker.memory import Releases, out_of_memory

MIB = 2**20


def test_the_footprint_grows_with_what_is_allocated() -> None:
    before = memory.footprint_bytes()
    held = bytearray(b"x" * (64 * MIB))
    assert memory.footprint_bytes() >= before + 48 * MIB
    assert held


def test_giving_back_memory_does_no_harm() -> None:
    memory.give_back_to_system()
    assert memory.footprint_bytes() > 0


@pytest.mark.parametrize(
    ("fault", "means_memory"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), True),
        (RuntimeError("MPS backend out of memory (MPS allocated: 17.99 GB)"), True),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: not enough memory"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"), True),
        (MemoryError(), True),
        (RuntimeError("CUDA error: device-side assert triggered"), False),
        (ValueError("out of memory"), False),
    ],
)
def test_a_shortage_of_memory_is_told_from_other_faults(
    fault: Exception, *, means_memory: bool
) -> None:
    assert out_of_memory(fault) is means_memory


def test_without_a_threshold_nothing_is_released() -> None:
    assert not Releases(None).due(10**15)


def test_past_the_threshold_memory_is_released() -> None:
    releases = Releases(100 * MIB)
    assert not releases.due(100 * MIB)
    assert releases.due(101 * MIB)
    releases.done(60 * MIB)
    assert releases.count == 1
    assert releases.due(101 * MIB)


def test_a_threshold_below_what_the_process_needs_does_not_release_after_every_batch() -> None:
    releases = Releases(100 * MIB)
    releases.done(500 * MIB)
    assert not releases.due(510 * MIB)
    assert releases.due(540 * MIB)


def test_what_a_failed_pass_held_is_gone_before_anybody_can_try_again() -> None:
    class Held:
        pass

    def fail() -> weakref.ref[Held]:
        held = Held()
        seen.append(weakref.ref(held))
        raise RuntimeError("MPS backend out of memory")

    seen: list[weakref.ref[Held]] = []
    with memory.MemoryWatch() as told:
        fail()
    assert seen[0]() is None
    assert str(told.shortage) == "MPS backend out of memory"


def test_other_failures_pass_the_watch() -> None:
    with pytest.raises(RuntimeError, match="mat1 and mat2"), memory.MemoryWatch():
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

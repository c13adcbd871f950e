"""The CPU's end of passes: kept, never shared by two, and nothing of it leaves with an answer."""

import threading
from collections.abc import Callable, Iterator

import pytest
import torch

from omni_jev_worker import accelerator
from omni_jev_worker.accelerator import Accelerator
from omni_jev_worker.network.staging import Found, Staging

Tensor = torch.Tensor


class Late(Accelerator):
    """A device that copies when it is waited for, and counts the memory that it was asked for."""

    def __init__(self) -> None:
        self.buffers: list[int] = []
        self.under_way: list[Callable[[], Tensor]] = []

    def host_buffer(self, size: int, dtype: torch.dtype) -> Tensor:
        self.buffers.append(size)
        return super().host_buffer(size, dtype)

    def send(self, host: Tensor, target: Tensor) -> None:
        self.under_way.append(lambda: target.copy_(host))

    def synchronize(self) -> None:
        while self.under_way:
            self.under_way.pop(0)()

    def fetch(self, computed: Tensor, host: Tensor) -> Callable[[], Tensor]:
        self.under_way.append(lambda: host.copy_(computed))

        def wait() -> Tensor:
            self.synchronize()
            return host

        return wait


def test_a_result_stays_what_it_is_when_the_next_pass_uses_the_same_memory() -> None:
    device = Late()
    staging = Staging(device)
    target = torch.zeros(5, dtype=torch.int32)
    results = []
    for turn in (1, 2, 3):
        staging.numbers(5).fill_(turn)
        staging.send(target)
        staging.fetch(target.view(1, 5))
        results.append(staging.result())
    assert [found.tolist() for found in results] == [[[turn] * 5] for turn in (1, 2, 3)]
    # Eight numbers there and eight back, for all three.
    assert device.buffers == [8, 8]


def test_more_numbers_get_more_memory_and_fewer_none() -> None:
    device = Late()
    staging = Staging(device)
    for size in (3, 4, 9, 2, 16):
        assert len(staging.numbers(size)) == size
    assert device.buffers == [4, 16]


def test_a_pass_that_was_given_up_is_waited_for_before_its_numbers_are_written_over() -> None:
    device = Late()
    staging = Staging(device)
    target = torch.zeros(2, dtype=torch.int32)
    staging.numbers(2).fill_(1)
    staging.send(target)
    # Nothing is fetched: the pass failed in between.
    staging.numbers(2).fill_(2)
    assert target.tolist() == [1, 1]
    staging.send(target)
    staging.fetch(target)
    staging.numbers(2).fill_(3)
    assert target.tolist() == [2, 2]


def test_what_was_not_asked_for_is_an_error() -> None:
    staging = Staging(Late())
    with pytest.raises(RuntimeError, match="nothing is under way"):
        staging.result()
    with pytest.raises(RuntimeError, match="no numbers to send"):
        staging.send(torch.zeros(1))


@pytest.fixture
def cuda() -> Iterator[Accelerator]:
    if not accelerator.is_available("cuda"):
        pytest.skip("there is no CUDA device")
    made = accelerator.of("cuda")
    made.take_thread()
    yield made
    torch.cuda.set_stream(torch.cuda.default_stream())


@pytest.mark.gpu
def test_a_result_that_another_thread_lets_go_of_in_a_recording_breaks_no_later_pass(
    cuda: Accelerator,
) -> None:
    staging = Staging(cuda)
    given = torch.zeros(8, dtype=torch.int32, device=cuda.device)
    computed = torch.zeros(8, device=cuda.device)

    def result_of(number: int) -> list[Found]:
        staging.numbers(8).fill_(number)
        staging.send(given)
        computed.copy_(given * 2)
        staging.fetch(computed)
        return [staging.result()]

    kept = result_of(1)

    def work() -> None:
        computed.copy_(given * 2)
        leaving = threading.Thread(target=kept.clear)
        leaving.start()
        leaving.join()

    graph = cuda.record(work)
    assert not kept
    for number in (2, 3, 4):
        assert result_of(number)[0].tolist() == [2.0 * number] * 8
    graph.replay()
    cuda.synchronize()
    assert computed.tolist() == [8.0] * 8

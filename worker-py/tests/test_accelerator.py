"""What differs between devices: each adapter that this machine can run does what it says."""

from collections.abc import Iterator

import pytest
import torch

from omni_jev_worker import accelerator
from omni_jev_worker.accelerator import Accelerator

WHY_NOT = {"cuda": "there is no CUDA device", "mps": "there is no Apple GPU"}


@pytest.fixture(params=["cpu", "cuda", "mps"])
def device(request: pytest.FixtureRequest) -> Iterator[Accelerator]:
    name = str(request.param)
    if not accelerator.is_available(name):
        pytest.skip(WHY_NOT[name])
    yield accelerator.of(name)
    if name == "cuda":
        torch.cuda.set_stream(torch.cuda.default_stream())


def test_numbers_go_there_and_come_back(device: Accelerator) -> None:
    device.take_thread()
    host = device.host_buffer(6, torch.int32)
    host.copy_(torch.arange(6))
    target = torch.empty(6, dtype=torch.int32, device=device.device)
    device.send(host, target)
    wait = device.fetch(target * 7, device.host_buffer(6, torch.int32))
    assert wait().tolist() == [0, 7, 14, 21, 28, 35]


def test_two_passes_under_way_keep_their_own_numbers(device: Accelerator) -> None:
    device.take_thread()
    target = torch.empty(1000, dtype=torch.int32, device=device.device)
    waits = []
    for turn in (1, 2):
        host = device.host_buffer(1000, torch.int32)
        host.fill_(turn)
        device.send(host, target)
        waits.append(device.fetch(target + 0, device.host_buffer(1000, torch.int32)))
    assert [int(wait().sum()) for wait in waits] == [1000, 2000]


def test_memory_is_counted_and_given_back(device: Accelerator) -> None:
    before = device.held_bytes()
    kept = torch.ones(64 * 2**20, dtype=torch.uint8, device=device.device)
    held = device.held_bytes()
    del kept
    device.synchronize()
    device.release()
    if device.name == "cpu":
        assert (before, held, device.held_bytes()) == (0, 0, 0)
    else:
        assert held >= before + 64 * 2**20
        assert device.held_bytes() < held


def test_recorded_work_runs_again_on_the_numbers_that_are_there_then(device: Accelerator) -> None:
    if not device.has_graphs:
        with pytest.raises(NotImplementedError, match="records no graphs"):
            device.record(lambda: None)
        return
    device.take_thread()
    given = torch.ones(4, device=device.device)
    found = torch.zeros(4, device=device.device)
    found.copy_(given * 2)

    def work() -> None:
        found.copy_(given * 2)

    graph = device.record(work)
    given.fill_(21)
    graph.replay()
    assert device.fetch(found, device.host_buffer(4, torch.float32))().tolist() == [42.0] * 4


def test_unpadded_attention_sees_each_row_alone_and_in_reach_only(device: Accelerator) -> None:
    if not device.has_unpadded_attention:
        pytest.skip(f"{device.name} has no unpadded attention")
    from omni_jev_worker.network.attention import RowByRow, SlidingMasks, Unpadded, flash_attention

    torch.manual_seed(1)
    lengths = [5, 200, 64, 130]
    triple = [torch.randn(sum(lengths) + 9, 2, 64) for _ in range(3)]
    ends = torch.tensor([0, 5, 205, 269, 399, 399, 399], dtype=torch.int32, device=device.device)
    there = [each.half().to(device.device) for each in triple]
    for sliding in (False, True):
        alone = RowByRow(lengths, SlidingMasks(64, torch.float32))
        expected = alone.over(*(each[:399] for each in triple), sliding=sliding)
        found = (
            Unpadded(ends, 512, 64, flash_attention)
            .over(*there, sliding=sliding)[:399]
            .float()
            .cpu()
        )
        assert float((found - expected).abs().max()) < 5e-3


def test_a_recording_that_breaks_leaves_the_others_and_more_can_be_recorded(
    device: Accelerator,
) -> None:
    if not device.has_graphs:
        pytest.skip(f"{device.name} records no graphs")
    device.take_thread()
    given = torch.ones(4, device=device.device)
    found = torch.zeros(4, device=device.device)

    def good() -> None:
        found.copy_(given * 2)

    def broken() -> None:
        # Waiting for the device cannot be recorded.
        float((given * 3).sum().item())

    good()
    before = device.record(good)
    with pytest.raises(RuntimeError):
        device.record(broken)
    after = device.record(good)
    for number, graph in enumerate((before, after, before), start=1):
        given.fill_(number)
        graph.replay()
        device.synchronize()
        assert found.tolist() == [2.0 * number] * 4


class Capturing:
    """Stands in for torch's graphs and the memory that they record into."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open: set[int] = set()
        self.pools = 0
        self.breaks_at: str | None = None
        monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: self)
        monkeypatch.setattr(torch.cuda, "graph_pool_handle", self._handle)
        monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
        monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
        monkeypatch.setattr(
            torch._C, "_cuda_endAllocateToPool", lambda _, pool: self._close(pool), raising=False
        )

    def _handle(self) -> int:
        self.pools += 1
        return self.pools

    def _close(self, pool: int) -> None:
        if pool not in self.open:
            raise RuntimeError("not recording to this pool")
        self.open.remove(pool)

    def capture_begin(self, *, pool: int, capture_error_mode: str) -> None:
        assert capture_error_mode == "thread_local"
        if pool in self.open:
            raise RuntimeError("already recording to this pool")
        self.open.add(pool)
        self._pool = pool
        if self.breaks_at == "begin":
            raise RuntimeError("no memory")

    def capture_end(self) -> None:
        if self.breaks_at in ("end", "work"):
            raise RuntimeError("the recording is broken")
        self._close(self._pool)


@pytest.mark.parametrize("where", ["begin", "work", "end"])
def test_wherever_a_recording_breaks_its_memory_is_closed_and_the_next_has_another(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accelerator, "_has_flash_attention", lambda: True)
    cuda = accelerator.of("cuda")
    capturing = Capturing(monkeypatch)

    def work() -> None:
        if capturing.breaks_at == "work":
            raise torch.OutOfMemoryError("no memory")

    cuda.record(work)
    capturing.breaks_at = where
    with pytest.raises(RuntimeError):
        cuda.record(work)
    assert capturing.open == set()
    capturing.breaks_at = None
    cuda.record(work)
    assert (capturing.open, capturing.pools) == (set(), 2)
    cuda.forget_graphs()
    cuda.record(work)
    assert capturing.pools == 3

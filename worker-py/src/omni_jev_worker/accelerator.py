"""What differs between devices besides arithmetic: each call that only one kind of device has.

Everything else of a pass is the same lines on all of them. `of` gives the adapter of a device.
"""

import contextlib
from collections.abc import Callable
from typing import Any, Final, Protocol

import torch

Tensor = torch.Tensor


class Graph(Protocol):
    """Recorded work."""

    def replay(self) -> None:
        """Do the work again, on the same memory."""


class Accelerator:
    """A device that needs nothing: the CPU, and what others fall back on."""

    name: str = "cpu"
    has_graphs: bool = False
    """Whether work can be recorded and started as one."""
    has_unpadded_attention: bool = False
    """Whether one call attends to rows of unlike lengths, in half precision."""

    @property
    def device(self) -> torch.device:
        """The device itself."""
        return torch.device(self.name)

    def take_thread(self) -> None:
        """Prepare the calling thread, which alone will use the device."""

    def held_bytes(self) -> int:
        """Count what torch holds of the device's memory, cached or used; 0 on the CPU."""
        return 0

    def release(self) -> None:
        """Give back what torch caches of the device's memory."""

    def synchronize(self) -> None:
        """Wait until the device has done all that it was given."""

    def host_buffer(self, size: int, dtype: torch.dtype) -> Tensor:
        """Make memory of so many numbers that the device can copy from without the CPU's help."""
        return torch.empty(size, dtype=dtype)

    def send(self, host: Tensor, target: Tensor) -> None:
        """Copy to the device's memory, when the device comes to it."""
        target.copy_(host)

    def fetch(self, computed: Tensor, host: Tensor) -> Callable[[], Tensor]:
        """Copy to a buffer of the CPU's memory; calling what this gives waits for the copy."""
        return lambda: host.copy_(computed)

    def forget_graphs(self) -> None:
        """Take other memory for the graphs that are recorded from now on.

        To be called when those recorded so far are gone: memory of graphs that are no more cannot
        be recorded into again.
        """

    def record(self, work: Callable[[], None]) -> Graph:
        """Record work that has run before. Raises what torch raises."""
        raise NotImplementedError(f"{self.name} records no graphs")


class Cuda(Accelerator):
    """An NVIDIA GPU (or what torch takes for one)."""

    name = "cuda"
    has_graphs = True

    def __init__(self) -> None:
        self._pool: Any = None
        self._broken: list[Any] = []
        self.has_unpadded_attention = _has_flash_attention()

    def take_thread(self) -> None:
        """Work on a stream of our own: the usual one cannot record."""
        if torch.cuda.current_stream() == torch.cuda.default_stream():
            torch.cuda.set_stream(torch.cuda.Stream())  # type: ignore[no-untyped-call]

    def held_bytes(self) -> int:
        """Count what torch holds of the device's memory."""
        return int(torch.cuda.memory_reserved())

    def release(self) -> None:
        """Give back what torch caches."""
        torch.cuda.empty_cache()

    def synchronize(self) -> None:
        """Wait until the device has done all that it was given."""
        torch.cuda.synchronize()

    def host_buffer(self, size: int, dtype: torch.dtype) -> Tensor:
        """Make pinned memory. Not to be let go of while another thread records: see `Staging`."""
        return torch.empty(size, dtype=dtype, pin_memory=True)

    def send(self, host: Tensor, target: Tensor) -> None:
        """Copy from pinned memory in the order of the stream."""
        target.copy_(host, non_blocking=True)

    def fetch(self, computed: Tensor, host: Tensor) -> Callable[[], Tensor]:
        """Copy to pinned memory, and wait for the copy alone."""
        host.copy_(computed, non_blocking=True)
        done = torch.cuda.Event()  # type: ignore[no-untyped-call]
        done.record()

        def wait() -> Tensor:
            done.synchronize()
            return host

        return wait

    def record(self, work: Callable[[], None]) -> Graph:
        """Record a CUDA graph; all share memory, since they run one after the other.

        Raises what torch raises; more can be recorded then, and what has been recorded stays.
        """
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        self.synchronize()
        graph = torch.cuda.CUDAGraph()
        try:
            # Not `torch.cuda.graph`, which collects garbage and empties the cache each time.
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            try:
                work()
            except BaseException:
                with contextlib.suppress(RuntimeError):
                    graph.capture_end()
                raise
            graph.capture_end()
        except BaseException:
            # torch goes on asking a recording that broke off whose memory it is that is pinned.
            self._broken.append(graph)
            self._leave_pool()
            raise
        return graph

    def forget_graphs(self) -> None:
        """Take other memory for the graphs that are recorded from now on."""
        self._pool = None

    def _leave_pool(self) -> None:
        """Take other memory for the next graphs.

        Where beginning or ending a recording raises, torch may leave the memory that it records
        into open: no recording into that could ever begin again, and no memory of any kind would
        be given back.
        """
        with contextlib.suppress(RuntimeError):
            torch._C._cuda_endAllocateToPool(torch.cuda.current_device(), self._pool)
        self._pool = None


class Mps(Accelerator):
    """The GPU of an Apple machine, through Metal."""

    name = "mps"

    def held_bytes(self) -> int:
        """Count what Metal's driver has allocated for torch."""
        return int(torch.mps.driver_allocated_memory())

    def release(self) -> None:
        """Give back what torch caches."""
        torch.mps.empty_cache()

    def synchronize(self) -> None:
        """Wait until the device has done all that it was given."""
        torch.mps.synchronize()


_KINDS: Final[dict[str, type[Accelerator]]] = {"cpu": Accelerator, "cuda": Cuda, "mps": Mps}


def of(device: str) -> Accelerator:
    """Give the adapter of a device by its name."""
    return _KINDS[device]()


def is_available(device: str) -> bool:
    """Say whether torch can use a device on this machine."""
    if device == "cuda":
        return torch.cuda.is_available()
    if device == "mps":
        return torch.backends.mps.is_available()
    return device == "cpu"


def _has_flash_attention() -> bool:
    """Say whether this build has flash attention, and this GPU can run it (Ampere and later)."""
    built = torch.backends.cuda.is_flash_attention_available()
    return built and torch.cuda.get_device_capability() >= (8, 0)

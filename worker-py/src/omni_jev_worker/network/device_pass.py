"""The network's passes on a device: rows in, numbers out, one copy each way and one wait.

Where the device has graphs, the work of each shape is recorded once and then started as one: a
pass is hundreds of small kernels, which take longer to start one by one than to run.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch

from omni_jev_worker import log
from omni_jev_worker.accelerator import Accelerator, Graph
from omni_jev_worker.buckets import Shape
from omni_jev_worker.collate import Item
from omni_jev_worker.faults import first_line
from omni_jev_worker.network.layouts import Layout
from omni_jev_worker.network.network import Network
from omni_jev_worker.network.parts import Tensor
from omni_jev_worker.network.regions import PLAIN
from omni_jev_worker.network.staging import Staging
from omni_jev_worker.scores import Scores

_TRIES: Final = 8

# Shapes past these run without a graph: they are rare, and their work outweighs its start.
_MOST_TOKENS: Final = 16384
_MOST_GRAPHS: Final = 256


class Running:
    """A pass that has been started."""

    def __init__(self, rows: int, shape: Shape, staging: Staging, free: list[Staging]) -> None:
        """Take what it runs in, and where its staging goes when it is done."""
        self._rows = rows
        self.shape = shape
        """What its rows are run in."""
        self._staging: Staging | None = staging
        self._free = free

    def result(self) -> Scores:
        """Wait for it, once: what it used is another pass's then. Raises what torch raises."""
        staging, self._staging = self._staging, None
        if staging is None:
            raise RuntimeError("this pass has given its result")
        try:
            found = staging.result()[: self._rows]
        finally:
            self._free.append(staging)
        return Scores(found[:, : self.shape.options], found[:, self.shape.options :])


@dataclass(frozen=True, slots=True)
class _Recorded:
    graph: Graph
    computed: Tensor


class DevicePass:
    """The passes of one network. Used by one thread, with any number of passes under way."""

    def __init__(
        self, network: Network, layout: Layout, accelerator: Accelerator, *, graphs: bool
    ) -> None:
        """Take the network on its device, and how it gets its rows."""
        self.network = network
        self.layout = layout
        self._accelerator = accelerator
        # Those of the passes before this one are gone with them.
        accelerator.forget_graphs()
        self._graphs = graphs and accelerator.has_graphs
        self._recorded: dict[Shape, _Recorded] = {}
        self._unrecordable: set[Shape] = set()
        self._plain_heads: set[bool] = set()
        self._inputs: Tensor | None = None
        self._free: list[Staging] = []

    @property
    def recorded(self) -> int:
        """How many graphs there are."""
        return len(self._recorded)

    def start(self, items: Sequence[Item]) -> Running:
        """Start a pass over at least one row. Raises what torch raises."""
        shape = self.layout.shape(items)
        staging = self._free.pop() if self._free else Staging(self._accelerator)
        try:
            self.layout.fill(staging.numbers(self.layout.size(shape)).numpy(), shape, items)
            with torch.inference_mode():
                self._run(shape, staging)
        except BaseException:
            self._free.append(staging)
            raise
        return Running(len(items), shape, staging, self._free)

    def choose_head(self, shape: Shape) -> bool:
        """Find out whether laya's head is faster compiled, for one row or for several; and say it.

        The shape decides for all of as few or as many rows. Compiled code is short of nothing on a
        device that records its work; elsewhere each call costs something.
        """
        several = shape.rows > 1
        self._plain_heads.discard(several)
        compiled = self._time(shape)
        self._plain_heads.add(several)
        if compiled <= self._time(shape):
            self._plain_heads.discard(several)
        self._recorded.pop(shape, None)
        return several not in self._plain_heads

    def _time(self, shape: Shape) -> float:
        """Give the seconds of a pass: the best of a few."""
        self._recorded.pop(shape, None)
        staging = Staging(self._accelerator)
        times = []
        with torch.inference_mode():
            for _ in range(_TRIES):
                staging.numbers(self.layout.size(shape)).zero_()
                begun = time.perf_counter()
                self._run(shape, staging)
                staging.result()
                times.append(time.perf_counter() - begun)
        return min(times)

    def prepare(self, shape: Shape) -> None:
        """Run a shape once and record it, so that its first batch takes no longer than others."""
        if not self._recordable(shape):
            return
        with torch.inference_mode():
            self._record(shape)

    def _run(self, shape: Shape, staging: Staging) -> None:
        size = self.layout.size(shape)
        if not self._recordable(shape):
            numbers = torch.empty(size, dtype=torch.int32, device=self._accelerator.device)
            staging.send(numbers)
            staging.fetch(self._compute(numbers, shape))
            return
        recorded = self._recorded.get(shape) or self._try_to_record(shape)
        if recorded is None:
            self._run(shape, staging)
            return
        staging.send(self._input(size))
        recorded.graph.replay()
        staging.fetch(recorded.computed)

    def _recordable(self, shape: Shape) -> bool:
        if not self._graphs or shape.rows * shape.options > _MOST_TOKENS:
            return False
        if shape in self._unrecordable:
            return False
        known = shape in self._recorded
        return known or (shape.length <= _MOST_TOKENS and len(self._recorded) < _MOST_GRAPHS)

    def _try_to_record(self, shape: Shape) -> _Recorded | None:
        """Record a shape; none where that fails, after which it always runs unrecorded."""
        try:
            return self._record(shape)
        except RuntimeError as fault:
            # The most frequent reason: a graph needs memory of its own, and none is left.
            self._unrecordable.add(shape)
            log.warning(
                f"a shape runs unrecorded, which is slower: {first_line(fault)}",
                rows=shape.rows,
                tokens=shape.length,
                options=shape.options,
            )
            return None

    def _record(self, shape: Shape) -> _Recorded:
        numbers = self._input(self.layout.size(shape))
        numbers.zero_()
        # Once as it is: what is compiled or loaded at a first call cannot be recorded.
        computed = self._compute(numbers, shape).clone()

        def work() -> None:
            computed.copy_(self._compute(numbers, shape))

        made = _Recorded(self._accelerator.record(work), computed)
        self._recorded[shape] = made
        return made

    def _input(self, size: int) -> Tensor:
        """Give the memory that all graphs read, or the first part of it."""
        if self._inputs is None:
            most = Shape(rows=64, length=_MOST_TOKENS, options=255)
            room = max(self.layout.size(most), 4 * _MOST_TOKENS)
            self._inputs = torch.zeros(room, dtype=torch.int32, device=self._accelerator.device)
        return self._inputs[:size]

    def _compute(self, numbers: Tensor, shape: Shape) -> Tensor:
        """Give rows by options and acts."""
        inputs, attention = self.layout.read(numbers, shape)
        head = PLAIN if (shape.rows > 1) in self._plain_heads else None
        logits, acts = self.network(inputs, attention, head)
        return torch.cat([logits, acts], 1)

"""The engine `onnx`: makes and loads its artifacts."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from omni_jev_worker.engines.forward import ANY_LENGTH, Forward, Unavailable
from omni_jev_worker.engines.names import ONNX
from omni_jev_worker.engines.packages import versions_of
from omni_jev_worker.tuning import INT8

_GRAPH: Final = "model.onnx"
_NUMBERS: Final = "weights.bin"


class OnnxEngine:
    """ONNX Runtime on the CPU."""

    name = ONNX
    device = "cpu"
    bucket = ANY_LENGTH
    members = frozenset([_GRAPH, _NUMBERS])
    graph = _GRAPH

    def check_system(self) -> None:
        """Refuse no system: where its package is, it runs."""

    def check(self) -> Mapping[str, str]:
        """Give the versions of its packages. Raises `Unavailable` where one is missing."""
        return versions_of("onnxruntime", "onnx", engine=self.name)

    def build(self, model: Any, window: int, weights: str, folder: Path) -> None:
        """Write the graph, and its numbers beside it. Raises `Unavailable`."""
        from omni_jev_worker.engines.ort.laya import LayaGraph
        from omni_jev_worker.engines.ort.products import Exact, Whole
        from omni_jev_worker.engines.ort.writer import GraphWriter
        from omni_jev_worker.network.network import rotations
        from omni_jev_worker.network.parts import known_form, take_apart

        if not known_form(model):
            raise Unavailable("the checkpoint is not of a known form")
        products = Whole() if weights == INT8 else Exact()
        with (folder / _NUMBERS).open("wb") as numbers:
            graph = LayaGraph(
                GraphWriter(numbers), take_apart(model), rotations(model, window), products
            )
            made = graph.write()
        (folder / _GRAPH).write_bytes(made.SerializeToString(deterministic=True))

    def inspect(self, folder: Path) -> None:
        """Check that the graph is of nodes that this engine writes. Raises `ValueError`."""
        from omni_jev_worker.engines.ort import writer
        from omni_jev_worker.engines.ort.laya import KINDS

        writer.inspect(folder, KINDS)

    def load(self, folder: Path, window: int, threads: int) -> Forward:
        """Load an artifact. Raises what ONNX Runtime raises."""
        from omni_jev_worker.engines.ort.session import Session

        return Session(folder, window, threads)

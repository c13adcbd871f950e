"""Writes an ONNX graph node by node, its large numbers in a file beside it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

GRAPH: Final = "model.onnx"
NUMBERS: Final = "weights.bin"

MICROSOFT: Final = "com.microsoft"
"""The domain of the operators that ONNX Runtime adds to the standard's."""

_OPSET: Final = 18
_IR_VERSION: Final = 9

# What is smaller stays in the graph; what is larger starts on a page, so that it can be mapped.
_INLINE_BYTES: Final = 1024
_PAGE: Final = 4096

Array = NDArray[Any]


class GraphWriter:
    """A graph under construction. Each call gives the name of what a node gives."""

    def __init__(self, numbers: BinaryIO) -> None:
        """Take the file that large numbers are written to."""
        self._numbers = numbers
        self._offset = 0
        self._nodes: list[onnx.NodeProto] = []
        self._initializers: list[onnx.TensorProto] = []
        self._small: dict[tuple[str, tuple[int, ...], bytes], str] = {}

    def constant(self, value: Any) -> str:
        """Have an array in the graph: a small one once, a large one in the file of numbers."""
        array = np.ascontiguousarray(value).reshape(np.shape(value))
        if array.nbytes >= _INLINE_BYTES:
            return self._external(array)
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._small:
            self._small[key] = f"c{len(self._initializers)}"
            self._initializers.append(numpy_helper.from_array(array, self._small[key]))
        return self._small[key]

    def node(self, kind: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """Add a node with one output."""
        return self.nodes(kind, *inputs, outputs=1, domain=domain, **attributes)[0]

    def nodes(
        self, kind: str, *inputs: str, outputs: int, domain: str = "", **attributes: Any
    ) -> tuple[str, ...]:
        """Add a node with several outputs."""
        names = tuple(f"n{len(self._nodes)}_{number}" for number in range(outputs))
        self.named(kind, inputs, names, domain=domain, **attributes)
        return names

    def named(
        self,
        kind: str,
        inputs: tuple[str, ...],
        outputs: tuple[str, ...],
        domain: str = "",
        **attributes: Any,
    ) -> None:
        """Add a node whose outputs have names of their own: the graph's."""
        self._nodes.append(helper.make_node(kind, inputs, outputs, domain=domain, **attributes))

    def model(
        self,
        inputs: Mapping[str, tuple[int, list[str]]],
        outputs: Mapping[str, tuple[int, list[str]]],
    ) -> onnx.ModelProto:
        """Give the whole, with its inputs and outputs: types and names of dimensions."""
        graph = helper.make_graph(
            self._nodes,
            "laya",
            [helper.make_tensor_value_info(name, *form) for name, form in inputs.items()],
            [helper.make_tensor_value_info(name, *form) for name, form in outputs.items()],
            self._initializers,
        )
        opsets = [helper.make_opsetid("", _OPSET), helper.make_opsetid(MICROSOFT, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION)

    def _external(self, array: Array) -> str:
        padding = -self._offset % _PAGE
        self._numbers.write(b"\0" * padding)
        tensor = TensorProto()
        tensor.name = f"c{len(self._initializers)}"
        tensor.data_type = helper.np_dtype_to_tensor_dtype(array.dtype)
        tensor.dims.extend(array.shape)
        tensor.data_location = TensorProto.EXTERNAL
        place = {
            "location": NUMBERS,
            "offset": self._offset + padding,
            "length": array.nbytes,
        }
        for key, value in place.items():
            tensor.external_data.add(key=key, value=str(value))
        self._numbers.write(array.data.cast("B"))
        self._offset += padding + array.nbytes
        self._initializers.append(tensor)
        return tensor.name


def inspect(folder: Path, kinds: frozenset[tuple[str, str]]) -> None:
    """Check that a graph has known nodes alone, and reads its own numbers alone.

    ``kinds`` are the domains and names of the operators. Raises `ValueError`.
    """
    try:
        model = onnx.load_model(str(folder / GRAPH), load_external_data=False)
    except Exception as fault:
        raise ValueError(f"{GRAPH} cannot be read ({type(fault).__name__})") from None
    if model.functions or model.training_info or model.graph.sparse_initializer:
        raise ValueError(f"{GRAPH} holds more than a graph of nodes and numbers")
    for node in model.graph.node:
        if (node.domain, node.op_type) not in kinds:
            raise ValueError(f"{GRAPH} has a node of a kind that is not known here")
        if any(a.HasField("g") or a.graphs or a.HasField("t") for a in node.attribute):
            raise ValueError(f"{GRAPH} has a node with more in it than numbers")
    size = (folder / NUMBERS).stat().st_size
    for tensor in model.graph.initializer:
        if tensor.data_location != TensorProto.EXTERNAL:
            continue
        place = {each.key: each.value for each in tensor.external_data}
        if set(place) != {"location", "offset", "length"} or place["location"] != NUMBERS:
            raise ValueError(f"{GRAPH} reads numbers from elsewhere than {NUMBERS}")
        if not (place["offset"].isdecimal() and place["length"].isdecimal()):
            raise ValueError(f"{GRAPH} has numbers without a place")
        if int(place["offset"]) + int(place["length"]) > size:
            raise ValueError(f"{NUMBERS} is shorter than {GRAPH} says")

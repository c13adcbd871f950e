"""Matrix products in a graph: in float32, or in whole numbers of eight bits."""

from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from omni_jev_worker.engines.ort.writer import MICROSOFT, GraphWriter
from omni_jev_worker.network.parts import Linear

_LARGEST: Final = 127
_ZERO: Final = 128

# Of a row that is all zero, which must not be divided by its largest number.
_LEAST: Final = 1e-12


@dataclass(frozen=True, slots=True)
class Operand:
    """What is multiplied, as a kind of product takes it."""

    numbers: str
    """Tokens by width."""
    sizes: str = ""
    """The largest absolute number of each token, where `numbers` are whole ones."""


class Products(Protocol):
    """One kind of product. An operand is prepared once for all the products that it is in."""

    def prepare(self, graph: GraphWriter, tokens: str) -> Operand:
        """Make an operand of tokens by width."""

    def multiply(self, graph: GraphWriter, operand: Operand, linear: Linear) -> str:
        """Give a linear layer's output, tokens by outputs."""


class Exact:
    """Products in float32."""

    def prepare(self, graph: GraphWriter, tokens: str) -> Operand:  # noqa: ARG002
        """Take the tokens as they are."""
        return Operand(tokens)

    def multiply(self, graph: GraphWriter, operand: Operand, linear: Linear) -> str:
        """Multiply, and add the bias if there is one."""
        found = graph.node("MatMul", operand.numbers, graph.constant(_transposed(linear)))
        return _biased(graph, found, linear)


class Whole:
    """Products of signed weights with unsigned tokens, eight bits each, summed in 32 bits.

    A weight is scaled with its output, a token by its own largest number: the product of one row's
    tokens is then the same whatever rows are beside it, which one scale for a whole batch, as
    ``DynamicQuantizeLinear`` has it, would not give.
    """

    def prepare(self, graph: GraphWriter, tokens: str) -> Operand:
        """Scale each token to its largest number, and round."""
        last = graph.constant(np.array([-1]))
        largest = graph.node("ReduceMax", graph.node("Abs", tokens), last, keepdims=1)
        sizes = graph.node("Max", largest, graph.constant(np.float32(_LEAST)))
        scaled = graph.node("Div", tokens, sizes)
        step, zero = self._step(graph)
        return Operand(graph.node("QuantizeLinear", scaled, step, zero), sizes)

    def multiply(self, graph: GraphWriter, operand: Operand, linear: Linear) -> str:
        """Multiply, scale back, and add the bias if there is one."""
        weight = _transposed(linear)
        scales = np.abs(weight).max(0) / _LARGEST
        scales[scales == 0] = 1.0
        rounded = np.round(weight / scales).astype(np.int8)
        step, zero = self._step(graph)
        found = graph.node(
            "MatMulIntegerToFloat",
            operand.numbers,
            graph.constant(rounded),
            step,
            graph.constant(scales.astype(np.float32)),
            zero,
            domain=MICROSOFT,
        )
        return _biased(graph, graph.node("Mul", found, operand.sizes), linear)

    def _step(self, graph: GraphWriter) -> tuple[str, str]:
        return graph.constant(np.float32(1 / _LARGEST)), graph.constant(np.uint8(_ZERO))


def part(linear: Linear, start: int, end: int) -> Linear:
    """Give the outputs of a linear layer from one to another."""
    bias = None if linear.bias is None else linear.bias[start:end]
    return Linear(linear.weight[start:end], bias)


def _transposed(linear: Linear) -> NDArray[np.float32]:
    return np.asarray(linear.weight.float().numpy().T, dtype=np.float32)


def _biased(graph: GraphWriter, product: str, linear: Linear) -> str:
    if linear.bias is None:
        return product
    return graph.node("Add", product, graph.constant(linear.bias.float().numpy()))

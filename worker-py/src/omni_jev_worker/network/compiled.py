"""The network's regions, compiled, and what the compiler did.

Small regions and not the whole network: the layers share them, so the compiler works for seconds
instead of a minute, and one form fits any number of tokens. Where the device records graphs,
calling a hundred of them instead of one costs nothing.
"""

import threading
import warnings
from collections.abc import Callable
from dataclasses import fields
from typing import Any, Final

import torch
from torch._dynamo.utils import counters
from torch._inductor import async_compile, config

from omni_jev_worker.network import regions
from omni_jev_worker.network.parts import Tensor
from omni_jev_worker.network.regions import PLAIN, Regions

# Which arguments of a region have a dimension that differs from batch to batch, and which.
_VARYING: Final[dict[str, tuple[tuple[int, int], ...]]] = {
    "enter": ((0, 0),),
    "encoder_open": ((0, 0), (2, 0), (3, 0)),
    "encoder_between": ((0, 0), (1, 0), (4, 0), (5, 0)),
    "leave": ((0, 0), (1, 0), (4, 0)),
    "head_open": ((0, 0),),
    "head_close": ((0, 0), (1, 0)),
    "decide": ((0, 0), (1, 0), (2, 0), (2, 1), (3, 0), (3, 1)),
}


# There are few pieces of code, and each of the compiler's processes takes hundreds of megabytes.
_MOST_PROCESSES: Final = 8


def compile_regions() -> Regions:
    """Give the regions compiled, which happens at their first calls.

    A call raises what the compiler raises; it never runs uncompiled instead. The compiler starts
    processes, which stay until `end_processes`.
    """
    config.compile_threads = min(config.compile_threads or _MOST_PROCESSES, _MOST_PROCESSES)
    made = {name: _compiled(getattr(regions, name), varying) for name, varying in _VARYING.items()}
    plain = {each.name: getattr(PLAIN, each.name) for each in fields(PLAIN)}
    return Regions(**{**plain, **made})


# What the compiler finds worth a word is about speed that was measured here, for users who cannot
# change it.
for _message in ("TensorFloat32 tensor cores", ".*Online softmax is disabled"):
    warnings.filterwarnings("ignore", message=_message)


def _compiled(
    function: Callable[..., Any], varying: tuple[tuple[int, int], ...]
) -> Callable[..., Any]:
    # Whole or not at all: by itself the compiler runs what it cannot do, or does too often, as it
    # was, and says nothing.
    compiled = torch.compile(function, fullgraph=True)
    if compiled is function:
        raise RuntimeError("it is switched off (TORCH_COMPILE_DISABLE, TORCHDYNAMO_DISABLE)")

    def call(*arguments: Any) -> Any:
        for at, dimension in varying:
            tensor: Tensor = arguments[at]
            if tensor.shape[dimension] > 1:
                torch._dynamo.mark_dynamic(tensor, dimension)
        return compiled(*arguments)

    return call


def graphs() -> int:
    """Count the pieces of code that the compiler has made in this process."""
    return int(counters["stats"]["unique_graphs"])


def end_processes() -> threading.Thread:
    """End the compiler's processes; it starts others if it has to compile again.

    They take seconds to end, which nobody has to wait for: it is done beside. Gives the thread.
    """
    ending = threading.Thread(
        target=async_compile.shutdown_compile_workers, name="compiler's end", daemon=True
    )
    ending.start()
    return ending

"""The packages that an engine needs, which are no part of a plain installation."""

import sys
from collections.abc import Mapping
from typing import Final

from omni_jev_worker.engines.forward import Unavailable
from omni_jev_worker.engines.names import COREML, MLX, ONNX

PINNED: Final[Mapping[str, tuple[str, ...]]] = {
    ONNX: ("onnx==1.23.2", "onnxruntime==1.32.0"),
    MLX: ("mlx==0.32.4" if sys.platform == "darwin" else "mlx[cpu]==0.32.4",),
    COREML: ("coremltools==9.0",),
}
"""What to install for each engine, in the versions that were tried: the package's extras."""


def versions_of(*names: str, engine: str) -> Mapping[str, str]:
    """Give the installed versions of an engine's packages.

    Raises `Unavailable` that names one that is missing, and what to install. That is the packages
    alone: installed as an extra, the worker itself would be copied beside where it runs from.
    """
    from importlib import metadata

    found = {}
    for name in names:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            wanted = " ".join(f"'{each}'" if "[" in each else each for each in PINNED[engine])
            raise Unavailable(
                f"the Python package {name} is not installed (pip install {wanted})"
            ) from None
    return found

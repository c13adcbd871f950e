"""The engine `coreml`: makes its artifacts anywhere, and runs them on macOS."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omni_jev_worker.engines.forward import Forward, Unavailable
from omni_jev_worker.engines.names import COREML
from omni_jev_worker.engines.packages import versions_of

_PROGRAM = "program.mlmodel"


class CoreMlEngine:
    """Core ML, of one length and in half precision."""

    name = COREML
    device = "cpu"
    bucket = "128"
    members = frozenset([_PROGRAM, "weight.bin", "act.safetensors"])
    graph = _PROGRAM

    def check(self) -> Mapping[str, str]:
        """Give the versions of its packages. Raises `Unavailable` where one is missing."""
        return versions_of("coremltools", engine=self.name)

    def check_system(self) -> None:
        """Refuse a system that has no Core ML. Raises `Unavailable`."""
        if sys.platform != "darwin":
            raise Unavailable(f"Core ML runs on macOS alone, and this system is {sys.platform}")

    def build(self, model: Any, window: int, weights: str, folder: Path) -> None:  # noqa: ARG002
        """Write the program, its numbers, and those of the last step. Raises `Unavailable`."""
        import numpy as np
        from safetensors.numpy import save_file

        from omni_jev_worker.engines.core_ml import program
        from omni_jev_worker.engines.core_ml.forward import ACT, LENGTH, OPTIONS
        from omni_jev_worker.network.network import rotations
        from omni_jev_worker.network.parts import known_form, take_apart

        if not known_form(model):
            raise Unavailable("the checkpoint is not of a known form")
        parts = take_apart(model)
        program.write(parts, rotations(model, max(window, LENGTH)), LENGTH, OPTIONS, folder)
        decision = parts.decision
        linears = {"inner": decision.act_inner, "act": decision.act}
        numbers = {f"{name}.weight": each.weight.float().numpy() for name, each in linears.items()}
        for name, each in linears.items():
            if each.bias is not None:
                numbers[f"{name}.bias"] = each.bias.float().numpy()
        save_file(numbers | {"reach": np.array([parts.reach])}, str(folder / ACT))

    def inspect(self, folder: Path) -> None:
        """Check that the program is of operators that this engine writes. Raises `ValueError`."""
        from omni_jev_worker.engines.core_ml import program

        program.inspect(folder)

    def load(self, folder: Path, window: int, threads: int) -> Forward:  # noqa: ARG002
        """Load an artifact. Raises what coremltools raises."""
        from omni_jev_worker.engines.core_ml.forward import CoreMlForward

        return CoreMlForward(folder)

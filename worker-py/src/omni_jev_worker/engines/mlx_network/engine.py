"""The engine `mlx`: makes and loads its artifacts."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omni_jev_worker.engines.forward import ANY_LENGTH, Forward, Unavailable
from omni_jev_worker.engines.names import DEVICES, MLX
from omni_jev_worker.engines.packages import versions_of
from omni_jev_worker.tuning import FP16

_FORM = "network.json"
_NUMBERS = "weights.safetensors"


class MlxEngine:
    """MLX on its default device."""

    name = MLX
    device = DEVICES[MLX]
    bucket = ANY_LENGTH
    members = frozenset([_FORM, _NUMBERS])
    graph = _FORM

    def check_system(self) -> None:
        """Refuse no system: where its package is, it runs."""

    def check(self) -> Mapping[str, str]:
        """Give the versions of its packages. Raises `Unavailable` where one is missing."""
        return versions_of("mlx", engine=self.name)

    def build(self, model: Any, window: int, weights: str, folder: Path) -> None:
        """Write the network's form and its numbers. Raises `Unavailable`."""
        from safetensors.numpy import save_file

        from omni_jev_worker.engines.mlx_network.form import form_of, numbers_of
        from omni_jev_worker.network.network import rotations
        from omni_jev_worker.network.parts import known_form, take_apart

        if not known_form(model):
            raise Unavailable("the checkpoint is not of a known form")
        parts, half = take_apart(model), weights == FP16
        form_of(parts, half=half).write(folder)
        numbers = numbers_of(parts, half=half)
        for kind, turns in rotations(model, window).items():
            cosines, sines = turns.at_all()
            numbers[f"turns.{kind}.cosines"] = cosines.numpy()
            numbers[f"turns.{kind}.sines"] = sines.numpy()
        save_file(numbers, str(folder / _NUMBERS))

    def inspect(self, folder: Path) -> None:
        """Check both files. Raises `ValueError`."""
        from omni_jev_worker.engines.mlx_network import form

        form.inspect(folder)

    def load(self, folder: Path, window: int, threads: int) -> Forward:  # noqa: ARG002
        """Load an artifact. Raises what MLX raises. MLX chooses its threads itself."""
        from omni_jev_worker.engines.mlx_network.network import MlxForward

        return MlxForward(folder, window)

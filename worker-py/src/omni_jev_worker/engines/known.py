"""Finds an engine by its name; what it needs is imported when it is first used."""

from omni_jev_worker.engines.forward import Engine, Unavailable
from omni_jev_worker.engines.names import COREML, ENGINES, MLX, ONNX, TORCH
from omni_jev_worker.exits import bad_configuration
from omni_jev_worker.tuning import Tuning


def find(name: str) -> Engine:
    """Give an engine other than torch. Raises `KeyError`."""
    if name == ONNX:
        from omni_jev_worker.engines.ort.engine import OnnxEngine

        return OnnxEngine()
    if name == MLX:
        from omni_jev_worker.engines.mlx_network.engine import MlxEngine

        return MlxEngine()
    if name == COREML:
        from omni_jev_worker.engines.core_ml.engine import CoreMlEngine

        return CoreMlEngine()
    raise KeyError(name)


def all_engines() -> list[Engine]:
    """Give every engine other than torch."""
    return [find(name) for name in ENGINES if name != TORCH]


def check(asked: Tuning) -> None:
    """Check that an engine other than torch can run here at all. Raises `Refusal`."""
    engine = find(asked.engine)
    try:
        engine.check_system()
        engine.check()
    except Unavailable as fault:
        raise bad_configuration(f"{asked}: {fault}") from None

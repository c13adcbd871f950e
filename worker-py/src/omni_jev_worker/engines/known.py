"""Finds an engine by its name; what it needs is imported when it is first used."""

from omni_jev_worker.engines.forward import Engine, Unavailable
from omni_jev_worker.engines.names import COREML, ENGINES, MLX, ONNX, TORCH
from omni_jev_worker.exits import bad_configuration


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


def check(name: str) -> None:
    """Check that an engine can run here at all, before torch is imported and a checkpoint loaded.

    Raises `Refusal`.
    """
    if name == TORCH:
        return
    engine = find(name)
    try:
        engine.check_system()
        engine.check()
    except Unavailable as fault:
        raise bad_configuration(f"--engine {name}: {fault}") from None

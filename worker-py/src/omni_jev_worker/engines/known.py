"""Finds an engine by its name; what it needs is imported when it is first used."""

from omni_jev_worker.engines.forward import Engine
from omni_jev_worker.engines.names import ONNX


def find(name: str) -> Engine:
    """Give an engine other than torch. Raises `KeyError`."""
    if name == ONNX:
        from omni_jev_worker.engines.ort.engine import OnnxEngine

        return OnnxEngine()
    raise KeyError(name)

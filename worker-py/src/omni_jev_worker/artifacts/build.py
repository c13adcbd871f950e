"""Makes an artifact of a loaded checkpoint, and publishes it."""

import time
from pathlib import Path
from typing import TYPE_CHECKING

from omni_jev_worker import __version__, log
from omni_jev_worker.artifacts import machine
from omni_jev_worker.artifacts.key import Key, file_hash
from omni_jev_worker.artifacts.manifest import Manifest
from omni_jev_worker.artifacts.store import Artifact, Store
from omni_jev_worker.artifacts.tree import tree_hash
from omni_jev_worker.checkpoints import WEIGHTS, Checkpoint
from omni_jev_worker.engines.forward import Engine

if TYPE_CHECKING:
    # For the types alone: this module is imported before torch may be.
    from omni_jev_worker.model import Model


def build(
    store: Store, key: Key, engine: Engine, checkpoint: Checkpoint, model: "Model"
) -> Artifact:
    """Make an artifact, under its lock. Raises `Unavailable`, and what its library raises."""
    log.info(f"building {key}", phase="compile", engine=engine.name, weights=key.weights)
    begun = time.monotonic()
    with store.staged() as folder:
        model.export(lambda inner: engine.build(inner, model.window, key.weights, folder))
        seconds = time.monotonic() - begun
        made = _manifest(folder, key, engine, checkpoint, model.window, seconds)
        made.write(folder)
        found = store.publish(folder, key)
    log.info(f"built {key}", phase="compile", ms=round(1000 * (time.monotonic() - begun)))
    return found


def _manifest(
    folder: Path, key: Key, engine: Engine, checkpoint: Checkpoint, window: int, seconds: float
) -> Manifest:
    return Manifest(
        checkpoint=checkpoint.name,
        origin=checkpoint.origin,
        revision=checkpoint.revision,
        source=key.source,
        weights_hash=file_hash(checkpoint.folder / WEIGHTS),
        engine=engine.name,
        bucket=key.bucket,
        precision=key.weights,
        length=window,
        graph=file_hash(folder / engine.graph),
        tree=tree_hash(folder, engine.members),
        platform=machine.here(),
        tools={**engine.check(), "omni-jev-worker": __version__},
        timings={"build": round(seconds, 3)},
    )

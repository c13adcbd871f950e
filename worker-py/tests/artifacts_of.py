"""An artifact for a test: made of the tiny checkpoint, in a store of its own."""

from pathlib import Path

from omni_jev_worker import checkpoints
from omni_jev_worker.artifacts.build import build
from omni_jev_worker.artifacts.key import Key, source_hash
from omni_jev_worker.artifacts.store import Artifact, Store
from omni_jev_worker.engines import known
from omni_jev_worker.engines.adoption import Adoption
from omni_jev_worker.engines.forward import ANY_LENGTH
from omni_jev_worker.engines.names import ONNX
from omni_jev_worker.known_answers import KnownAnswers
from omni_jev_worker.model import Model
from omni_jev_worker.tuning import FP32, Tuning


def key_of(folder: Path, weights: str = FP32) -> Key:
    """The key of the artifact of a checkpoint."""
    return Key(source_hash(folder), ONNX, ANY_LENGTH, weights)


def built(folder: Path, store: Store, weights: str = FP32) -> Artifact:
    """Build it, unproved."""
    checkpoint = checkpoints.from_folder(str(folder))
    key = key_of(folder, weights)
    with store.locked(key):
        return build(store, key, known.find(ONNX), checkpoint, Model(checkpoint, "cpu"))


def adopting(
    folder: Path,
    store: Store,
    weights: str = FP32,
    *,
    engine: str = ONNX,
    compares: bool = False,
    rechecks: bool = False,
) -> Adoption:
    """What gives an engine's model to onnx."""
    checkpoint = checkpoints.from_folder(str(folder))
    answers = KnownAnswers(store.root / "answers", checkpoint.folder, {})
    asked = Tuning(weights, engine=engine)
    return Adoption(asked, checkpoint, store, 1, answers, compares=compares, rechecks=rechecks)

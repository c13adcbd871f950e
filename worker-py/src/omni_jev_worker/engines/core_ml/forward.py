"""Runs a Core ML program: one row at a time, padded to its length. On macOS alone."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import coremltools as ct
import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

from omni_jev_worker.collate import Item
from omni_jev_worker.engines.core_ml.program import PROGRAM
from omni_jev_worker.engines.forward import Reach
from omni_jev_worker.network.regions import MASKED
from omni_jev_worker.scores import Scores, join

LENGTH: Final = 128
OPTIONS: Final = 16
ACT: Final = "act.safetensors"

Floats = NDArray[np.float32]

# Added to what a token must not see, and within what half precision holds.
_UNSEEN: Final = -1e4


def inputs_of(item: Item, reach: int) -> dict[str, NDArray[Any]]:
    """Give a program's inputs for one row, padded to its length."""
    tokens, markers = len(item["ids"]), item["markers"]
    place = np.arange(LENGTH)
    padding = np.broadcast_to(place >= tokens, (LENGTH, LENGTH))
    far = np.abs(place[:, None] - place) > reach
    ids, options = np.zeros(LENGTH, dtype=np.int32), np.zeros(OPTIONS, dtype=np.int32)
    ids[:tokens], options[: len(markers)] = item["ids"], markers
    return {
        "ids": ids,
        "kind": np.array([item["qtype"]], dtype=np.int32),
        "full": _mask(padding),
        "sliding": _mask(padding | far),
        "options": options,
        "unseen": np.where(np.arange(OPTIONS) < len(markers), 0, MASKED)[None].astype(np.float32),
    }


def acts_of(
    logits: Floats, first: Floats, options: int, numbers: dict[str, NDArray[Any]]
) -> Floats:
    """Do the last step in full precision: see `regions.decide`. All have one row."""
    likely = _softmax(logits)
    count = max(options, 2)
    entropy = -(likely * np.log(np.maximum(likely, 1e-9))).sum() / math.log(count)
    second, best = np.sort(likely[0])[-2:]
    features = np.array([[best, best - second, entropy, count / 255.0]], dtype=np.float32)
    pooled = np.concatenate([first, features], axis=1)
    inner = pooled @ numbers["inner.weight"].T + numbers["inner.bias"]
    erf = np.array([[math.erf(each / math.sqrt(2)) for each in inner[0]]], dtype=np.float32)
    return _softmax(0.5 * inner * (1 + erf) @ numbers["act.weight"].T + numbers["act.bias"])


class CoreMlForward:
    """The pass of one artifact. Used by one thread."""

    reach = Reach(tokens=LENGTH, rows=1, options=OPTIONS)

    def __init__(self, folder: Path) -> None:
        """Load and compile it. Raises what coremltools raises; on other systems than macOS too."""
        spec = ct.utils.load_spec(str(folder / PROGRAM))
        self._numbers = load_file(str(folder / ACT))
        self._model = ct.models.MLModel(
            spec, weights_dir=str(folder), compute_units=ct.ComputeUnit.CPU_AND_NE
        )

    def __call__(self, items: Sequence[Item]) -> Scores:
        """Run rows, one after the other."""
        return join([self._run(item) for item in items])

    def _run(self, item: Item) -> Scores:
        reach = int(self._numbers["reach"][0])
        given = self._model.predict(inputs_of(item, reach))
        logits = np.asarray(given["logits"], dtype=np.float32)
        first = np.asarray(given["first"], dtype=np.float32)
        return Scores(logits, acts_of(logits, first, len(item["markers"]), self._numbers))


def _mask(unseen: NDArray[np.bool_]) -> Floats:
    return np.where(unseen, _UNSEEN, 0)[None].astype(np.float32)


def _softmax(logits: Floats) -> Floats:
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True), dtype=np.float32)

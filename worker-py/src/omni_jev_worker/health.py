"""What ``GET /health`` answers, from a snapshot that the engine publishes.

Reading it takes no lock of the engine and touches no device: health answers while an inference or
a download runs, and never makes a GPU wait.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Any, Final

from omni_jev_worker import __version__, memory
from omni_jev_worker.checkpoints import DEMO, DEMO_NOTE
from omni_jev_worker.fallback import FallbackState
from omni_jev_worker.queue import QueueState

_STARTED: Final = time.monotonic()


@dataclass(frozen=True, slots=True)
class ModelState:
    """One loaded checkpoint, as the engine last saw it."""

    name: str
    checkpoint: str
    revision: str | None
    released: date
    device: str
    device_mismatch: bool
    weights_dtype: str
    autocast_dtype: str | None
    mps_amp_min_rows: int
    window: int
    forward: str
    """`laya`, or `packed` where rows run unpadded on the CPU."""
    warmup_ms: int

    def to_json(self) -> dict[str, Any]:
        """Give the fields that `/health` has for each model, and for the default at its top."""
        shown: dict[str, Any] = {
            "checkpoint": self.checkpoint,
            "revision": self.revision,
            "released": self.released.isoformat(),
            "device": self.device,
            "device_mismatch": self.device_mismatch,
            "weights_dtype": self.weights_dtype,
            "autocast_dtype": self.autocast_dtype,
            "mps_amp_min_rows": self.mps_amp_min_rows,
            "window": self.window,
            "forward": self.forward,
            "warmup_ms": self.warmup_ms,
        }
        if self.checkpoint == DEMO:
            shown["note"] = DEMO_NOTE
        return shown


@dataclass(frozen=True, slots=True)
class MemoryState:
    """What the models hold, as the engine last saw it."""

    device_bytes: int = 0
    """What torch holds of the device's memory; 0 on the CPU."""
    lengths_seen: int = 0
    """Different padded lengths that have run."""
    releases: int = 0
    """How often cached memory was released because of ``--release-memory``."""


@dataclass(frozen=True, slots=True)
class Others:
    """The checkpoints beside the default."""

    models: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    """The loaded ones, with the fields of `ModelState.to_json`."""
    preparing: tuple[str, ...] = ()
    footprint_bytes: int = 0
    """What their processes hold."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The engine's state at one moment; replaced as a whole, never changed."""

    requested_device: str
    model: ModelState
    threads: int
    length_buckets: tuple[int, ...] = ()
    """The lengths that inputs are padded to; empty where they keep theirs."""
    memory: MemoryState = field(default_factory=MemoryState)
    fallback: FallbackState = field(default_factory=FallbackState)
    kept_warm: int = 0
    """How often a tiny batch ran because of ``--keep-warm``."""


def report(
    snapshot: Snapshot, queue: QueueState, others: Others, *, instance: str, draining: bool
) -> dict[str, Any]:
    """Put the body of `/health` together."""
    default = snapshot.model
    models = {default.name: default.to_json(), **others.models}
    mismatch = any(model.get("device_mismatch", False) for model in models.values())
    status = "draining" if draining else "degraded" if mismatch else "ready"
    return {
        "status": status,
        "ready": not draining,
        "instance": instance,
        "version": __version__,
        "uptime_s": round(time.monotonic() - _STARTED, 3),
        "requested_device": snapshot.requested_device,
        **default.to_json(),
        "device_mismatch": mismatch,
        "threads": snapshot.threads,
        "loaded": list(models),
        "preparing": list(others.preparing),
        "models": models,
        "compile": {
            "enabled": False,
            "active": False,
            "graphs_at_ready": 0,
            "graphs_now": 0,
            "recompiled_after_ready": False,
        },
        "queue": {
            "depth": queue.depth,
            "capacity": queue.capacity,
            "oldest_ms": queue.oldest_ms,
            "batches": queue.batches,
            "rows": queue.rows,
        },
        "memory": {
            "footprint_bytes": memory.footprint_bytes() + others.footprint_bytes,
            "device_bytes": snapshot.memory.device_bytes,
            "lengths_seen": snapshot.memory.lengths_seen,
            "releases": snapshot.memory.releases,
        },
        "length_buckets": list(snapshot.length_buckets),
        "fallback": {
            "count": snapshot.fallback.count,
            "splits": snapshot.fallback.splits,
            "last_reason": snapshot.fallback.last_reason,
            "since": snapshot.fallback.since,
        },
        "kept_warm": snapshot.kept_warm,
    }

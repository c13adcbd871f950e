"""What ``GET /health`` answers, from a snapshot that the engine publishes.

Reading it takes no lock of the engine and touches no device: health answers while an inference or
a download runs, and never makes a GPU wait.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Any, Final, Protocol

from omni_jev_worker import __version__, memory
from omni_jev_worker.checkpoints import DEMO, DEMO_NOTE
from omni_jev_worker.fallback import FallbackState
from omni_jev_worker.queue import QueueState
from omni_jev_worker.recheck import RecheckState
from omni_jev_worker.tuner import TuningState

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
    """`laya`, or `packed` where rows run unpadded on the CPU, or the engine's name."""
    warmup_ms: int
    engine: str = "torch"
    """What runs it: one of `engines.names.ENGINES`."""
    artifact: str | None = None
    """The hash of what another engine than torch runs."""
    checkpoint_hash: str | None = None
    """The hash of the files of one that has no revision."""

    def to_json(self) -> dict[str, Any]:
        """Give the fields that `/health` has for each model, and for the default at its top."""
        shown: dict[str, Any] = {
            "checkpoint": self.checkpoint,
            "revision": self.revision,
            "checkpoint_hash": self.checkpoint_hash,
            "released": self.released.isoformat(),
            "device": self.device,
            "device_mismatch": self.device_mismatch,
            "weights_dtype": self.weights_dtype,
            "autocast_dtype": self.autocast_dtype,
            "mps_amp_min_rows": self.mps_amp_min_rows,
            "window": self.window,
            "engine": self.engine,
            "artifact": self.artifact,
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
class CompiledState:
    """What is compiled, as the engine last saw it."""

    active: bool = False
    """Whether compiled code runs."""
    graphs: int = 0
    """Pieces of code that the compiler has made."""
    recorded: int = 0
    """Shapes whose work the device has recorded."""


@dataclass(frozen=True, slots=True)
class Others:
    """The checkpoints beside the default."""

    models: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    """The loaded ones, with the fields of `ModelState.to_json`."""
    preparing: tuple[str, ...] = ()
    footprint_bytes: int = 0
    """What their processes hold."""


class Background(Protocol):
    """What compiles in another process: `successor.Successor`."""

    state: str
    reason: str | None


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
    tuning: TuningState = field(default_factory=TuningState)
    compiled: CompiledState = field(default_factory=CompiledState)
    recheck: RecheckState = field(default_factory=RecheckState)

    def compile_json(self, background: str | None = None) -> dict[str, Any]:
        """Give what `/health` says of the compiler, and of a process that compiles meanwhile."""
        at_ready = self.tuning.graphs
        return {
            "enabled": self.tuning.asked.compiled or background is not None,
            "in_background": background,
            "active": self.compiled.active,
            "graphs_at_ready": at_ready,
            "graphs_now": self.compiled.graphs,
            "recompiled_after_ready": self.compiled.graphs > at_ready,
            "recorded_shapes": self.compiled.recorded,
        }

    def tuning_json(self, failed: str | None = None) -> dict[str, Any]:
        """Give what `/health` says of precision and compiler together."""
        reasons = [*self.tuning.reasons, *([f"--compile: {failed}"] if failed else [])]
        if (fault := self.recheck.fault) is not None:
            reasons.append(f"{self.tuning.given}, checked again: {fault}")
        return {
            "asked": str(self.tuning.asked),
            "given": str(self.tuning.given),
            "reasons": reasons,
        }

    def parity_json(self) -> dict[str, Any] | None:
        """Give what `/health` says of the newest comparison; none where there was none."""
        newest = self.recheck.report or self.tuning.parity
        if newest is None:
            return None
        return {
            **newest.to_json(),
            # What the gate refused does not answer: then it is of that, and not of what does.
            "served": not self.tuning.given.is_plain,
            "rechecks": self.recheck.count,
        }

    @property
    def is_less(self) -> bool:
        """Whether it does not run as it was asked to, device apart."""
        lost = self.tuning.given.compiled and not self.compiled.active
        return self.tuning.is_less or lost or self.recheck.fault is not None


def report(
    snapshot: Snapshot,
    queue: QueueState,
    others: Others,
    *,
    instance: str,
    draining: bool,
    background: Background | None = None,
) -> dict[str, Any]:
    """Put the body of `/health` together."""
    default = snapshot.model
    parity = snapshot.parity_json()
    models = {default.name: default.to_json() | {"parity": parity}, **others.models}
    mismatch = any(model.get("device_mismatch", False) for model in models.values())
    failed = background.reason if background is not None else None
    doubted = any(_is_doubted(model.get("parity")) for model in others.models.values())
    less = mismatch or snapshot.is_less or doubted or failed is not None
    status = "draining" if draining else "degraded" if less else "ready"
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
        "compile": snapshot.compile_json(background.state if background is not None else None),
        "tuning": snapshot.tuning_json(failed),
        "parity": parity,
        "recheck": {"every_s": snapshot.recheck.every, "nothing": snapshot.recheck.nothing},
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


def _is_doubted(parity: Mapping[str, Any] | None) -> bool:
    """Say whether answers are given that do not agree with the reference."""
    return parity is not None and parity.get("served") is True and parity["passed"] is False

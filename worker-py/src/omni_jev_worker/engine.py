"""The one thread that owns torch: it has a model loaded, and runs every forward pass.

Two threads using a GPU through torch abort or hang the process on some systems, so nothing else
calls the model's device side. What others may know of it is published as a `Snapshot`.
"""

import gc
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from omni_jev_worker import buckets, log, memory
from omni_jev_worker.batching import PACKED, Batcher, PackedBatcher, bounds_for
from omni_jev_worker.buckets import AUTO, EXACT
from omni_jev_worker.checkpoints import Checkpoint
from omni_jev_worker.engines.names import TORCH
from omni_jev_worker.exits import FAILED
from omni_jev_worker.fallback import Fallback
from omni_jev_worker.health import CompiledState, MemoryState, ModelState, Snapshot
from omni_jev_worker.idle import Chores
from omni_jev_worker.known_answers import KnownAnswers
from omni_jev_worker.loader import LAYA, Loader, Warm
from omni_jev_worker.pipeline import Pipeline
from omni_jev_worker.queue import Errand, Former, RowQueue, Slice
from omni_jev_worker.scores import join
from omni_jev_worker.tuner import Tuner, Tunes
from omni_jev_worker.tuning import PLAIN

if TYPE_CHECKING:
    # For the types alone: this module is imported before torch may be.
    from omni_jev_worker.model import Model

_STOP_SECONDS: Final = 1.0

# How old what `/health` says of batches may be.
_TELL_SECONDS: Final = 0.02


class InferenceFailed(Exception):
    """The forward pass of a request failed; the reason is in the log."""


class Engine:
    """Owns the models. Started once, stopped once."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        queue: RowQueue,
        *,
        device: str,
        require_device: bool,
        threads: int,
        length_buckets: str | tuple[int, ...] = buckets.AUTO,
        release_memory: int | None = None,
        keep_warm: float | None = None,
        recheck: float | None = None,
        forward: str = AUTO,
        tuner: "Tunes | None" = None,
        known: KnownAnswers | None = None,
    ) -> None:
        """Take what to load and how to run it.

        ``release_memory`` is the footprint in bytes past which cached memory is released,
        ``keep_warm`` the idle seconds after which a tiny batch runs, ``recheck`` those from one
        check of the parity rows to the next; none of any does not.
        ``forward`` is `AUTO` or `LAYA`; ``tuner`` knows in which precision, and whether compiled;
        ``known`` is where laya's own answers are kept from one start to the next.
        """
        self._checkpoint = checkpoint
        self._queue = queue
        self._fallback = Fallback()
        self._loader = Loader(
            checkpoint,
            device,
            require_device,
            threads,
            length_buckets,
            forward,
            tuner if tuner is not None else Tuner(PLAIN),
            known,
            self._fallback,
        )
        self._releases = memory.Releases(release_memory)
        self._retired = False
        self._untold = False
        self._told_at = self._ran_at = time.monotonic()
        self._chores = Chores(self._loader.tuner, keep_warm=keep_warm, recheck=recheck)
        self._loaded: Warm | None = None
        self._batcher: Former = Batcher(bounds_for("cpu"), EXACT)
        self._batches_suit = "cpu"
        self._snapshot: Snapshot | None = None
        self._ready: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    def start(self) -> Future[None]:
        """Start loading; the future completes when warm, or fails with why it never will be."""
        self._thread.start()
        return self._ready

    def stop(self) -> bool:
        """Let what is queued finish, and say whether it did so in time."""
        self._queue.close()
        self._thread.join(_STOP_SECONDS)
        return not self._thread.is_alive()

    def retire(self) -> None:
        """Give the model's memory back: nothing is asked of it any more."""
        self._retired = True
        self._queue.close()

    @property
    def snapshot(self) -> Snapshot:
        """The state last published. Only after the future of `start` has completed."""
        if self._snapshot is None:
            raise RuntimeError("the engine has not published a state yet")
        return self._snapshot

    @property
    def model(self) -> "Model":
        """The loaded model. Only after the future of `start` has completed."""
        return self._warm.model

    @property
    def _warm(self) -> Warm:
        if self._loaded is None:
            raise RuntimeError("the engine has not loaded a model yet")
        return self._loaded

    def recover_device(self) -> "Future[str | None]":
        """Bring the model back to the device it lost: none when it is there, else why not.

        Raises `QueueClosed`. What waits already is answered first.
        """
        errand = Errand(self._recover)
        self._queue.put(errand)
        return errand.result

    def _recover(self) -> str | None:
        model, wanted = self.model, self._warm.wanted
        if model.device != wanted:
            reason = self._warm.inference.go_home()
            self._fit_batches_to(model.device)
            self._publish()
            if reason is not None:
                return reason
        return None if model.device == wanted else f"it was loaded on {model.device}"

    def _run(self) -> None:
        try:
            self._load()
        except BaseException as fault:
            self._ready.set_exception(fault)
            return
        self._ready.set_result(None)
        pipeline = Pipeline(
            self._queue, self._start, self._give_out, works_alone=lambda: self.model.is_tuned
        )
        try:
            while (found := pipeline.next(lambda: self._batcher, self._patience())) is not None:
                if self._untold:
                    self._tidy_up()
                if isinstance(found, Errand):
                    found.result.set_result(found.work())
                elif self._chores.do_one(time.monotonic(), self._ran_at):
                    self._publish()
        except BaseException as fault:
            # Without this thread nothing is ever answered again: a new process is the cure.
            log.error(f"the engine's thread ended: {log.where(fault)}")
            os._exit(FAILED)
        if self._retired:
            self._chores.put_down()
            self.model.unload()

    def _load(self) -> None:
        """Load, warm up and publish."""
        warm = self._loaded = self._loader.load()
        self._chores.take_up(warm.model, warm.inference, warm.tiny, warm.tuning.given)
        self._fit_batches_to(warm.model.device)
        self._publish()
        # What is loaded now stays for good: the collector need not walk it again and again.
        gc.collect()
        gc.freeze()

    def _start(self, batch: list[Slice]) -> "Callable[[], Any]":
        """Start a batch on a device that works by itself; elsewhere it runs when waited for."""
        inference = self._warm.inference
        started = time.monotonic()
        for piece in batch:
            piece.job.begun_at = piece.job.begun_at or started
        parts = [piece.job.encoded.part(piece.rows) for piece in batch]
        wait = inference.start(parts) if self.model.is_tuned else partial(inference.run, parts)

        def wait_and_count() -> Any:
            results = wait()
            rows = sum(len(piece.rows) for piece in batch)
            self._queue.ran(rows, time.monotonic() - started)
            return results

        return wait_and_count

    def _give_out(self, batch: list[Slice], results: "Sequence[Any]") -> None:
        """Complete the requests that have all their scores now."""
        for piece, scores in zip(batch, results, strict=True):
            self._complete(piece, scores)
        self._untold = True
        now = self._ran_at = time.monotonic()
        # Not after each: whoever sends the answers would wait for it.
        if now - self._told_at > _TELL_SECONDS:
            self._tidy_up()

    def _patience(self) -> float | None:
        """Say how long to wait for a batch before there is something else to do."""
        wait = self._chores.due_in(time.monotonic(), self._ran_at)
        if self._untold:
            return _TELL_SECONDS if wait is None else min(wait, _TELL_SECONDS)
        return wait

    def _complete(self, piece: Slice, scores: Any) -> None:
        job = piece.job
        job.parts.append((piece, scores))
        failed = isinstance(scores, Exception)
        done = [row for part, _ in job.parts for row in part.rows]
        if not failed and len(done) < job.rows:
            return
        # False when its client has left meanwhile, or another part of it has failed.
        if job.result.done() or not job.result.set_running_or_notify_cancel():
            return
        if failed:
            job.result.set_exception(InferenceFailed())
        else:
            job.result.set_result(join([part for _, part in job.parts], done))

    def _fit_batches_to(self, device: str) -> None:
        """Form batches that suit the device that the model is on now."""
        self._batches_suit = device
        # Away from its device the model is on the CPU, where padding costs and brings nothing.
        suiting = self._warm.buckets if device == self._warm.home else EXACT
        if self.model.takes_any_lengths and suiting == EXACT:
            self._batcher = PackedBatcher(PACKED if device == "cpu" else bounds_for(device))
        else:
            self._batcher = Batcher(bounds_for(device), suiting)
        self._warm.inference.buckets = suiting

    def _tidy_up(self) -> None:
        """Release memory past the threshold, between batches, and tell what there is now."""
        model = self.model
        self._untold, self._told_at = False, time.monotonic()
        if model.device != self._batches_suit:
            self._fit_batches_to(model.device)
        # A discrete GPU's memory is not in the system's count; Metal's is.
        held = model.device_bytes if model.device == "cuda" else 0
        footprint = memory.footprint_bytes() + held
        if self._releases.due(footprint):
            model.release_memory()
            self._releases.done(memory.footprint_bytes() + held)
            log.debug("released cached memory", footprint_bytes=footprint)
        self._publish()

    def _publish(self) -> None:
        warm, loader, checkpoint = self._warm, self._loader, self._checkpoint
        model = warm.model
        state = ModelState(
            name=checkpoint.name,
            checkpoint=checkpoint.origin,
            revision=checkpoint.revision,
            released=checkpoint.released,
            device=model.device,
            device_mismatch=model.device != warm.wanted,
            weights_dtype=model.weights_dtype,
            autocast_dtype=model.autocast_dtype,
            mps_amp_min_rows=model.mps_amp_min_rows,
            window=model.window,
            engine=model.engine,
            artifact=model.artifact,
            checkpoint_hash=self._hash_without_revision(),
            forward=_forward_name(warm),
            warmup_ms=warm.warmup_ms,
        )
        self._snapshot = Snapshot(
            requested_device=loader.device,
            model=state,
            threads=loader.threads,
            length_buckets=warm.buckets.lengths,
            memory=MemoryState(
                device_bytes=model.device_bytes,
                lengths_seen=model.lengths_seen,
                releases=self._releases.count,
            ),
            fallback=self._fallback.state,
            kept_warm=self._chores.kept_warm,
            tuning=warm.tuning,
            recheck=self._chores.recheck,
            compiled=CompiledState(
                active=model.runs_compiled,
                graphs=model.compiled_graphs,
                recorded=model.recorded_graphs,
            ),
        )

    def _hash_without_revision(self) -> str | None:
        """Tell which files a checkpoint has that no revision tells from others."""
        known = self._loader.known
        if known is None or self._checkpoint.revision is not None:
            return None
        return known.checkpoint_hash()


def _forward_name(warm: Warm) -> str:
    model = warm.model
    if model.engine != TORCH:
        return model.engine
    if model.is_tuned:
        return "network"
    return "packed" if model.is_packed and warm.buckets == EXACT else LAYA

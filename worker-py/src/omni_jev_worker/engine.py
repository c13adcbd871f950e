"""The one thread that owns torch: it imports it, loads, warms up, and runs every forward pass.

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

from omni_jev_worker import buckets, log, memory, warmup
from omni_jev_worker import trial as trials
from omni_jev_worker.batching import PACKED, Batcher, PackedBatcher, bounds_for
from omni_jev_worker.buckets import AUTO, EXACT
from omni_jev_worker.checkpoints import Checkpoint
from omni_jev_worker.engines.names import TORCH
from omni_jev_worker.exits import (
    BAD_CONFIGURATION,
    FAILED,
    WRONG_DEVICE,
    Refusal,
    bad_configuration,
)
from omni_jev_worker.fallback import Fallback
from omni_jev_worker.faults import is_the_machines, unusable
from omni_jev_worker.health import CompiledState, MemoryState, ModelState, Snapshot
from omni_jev_worker.idle import Chores
from omni_jev_worker.inference import Inference
from omni_jev_worker.known_answers import KnownAnswers
from omni_jev_worker.pipeline import Pipeline
from omni_jev_worker.queue import Errand, Former, RowQueue, Slice
from omni_jev_worker.scores import NotFinite, Scores, join
from omni_jev_worker.trial import Trial
from omni_jev_worker.tuner import Tuner, Tunes, TuningState
from omni_jev_worker.tuning import PLAIN

if TYPE_CHECKING:
    # For the types alone: this module is imported before torch may be.
    from omni_jev_worker.model import Encoded, Model

_STOP_SECONDS: Final = 1.0

# How old what `/health` says of batches may be.
_TELL_SECONDS: Final = 0.02

LAYA: Final = "laya"
"""The pass that is laya's own, for ``--forward``."""


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
        self._requested = device
        self._wanted = device
        self._require_device = require_device
        self._threads = threads
        self._length_buckets = length_buckets
        self._releases = memory.Releases(release_memory)
        self._retired = False
        self._untold = False
        self._told_at = self._ran_at = time.monotonic()
        self._forward = forward
        self._known = known
        self._tuner: Tunes = tuner if tuner is not None else Tuner(PLAIN)
        self._chores = Chores(self._tuner, keep_warm=keep_warm, recheck=recheck)
        self._tuning = TuningState()
        self._model: Model | None = None
        self._buckets = EXACT
        self._batcher: Former = Batcher(bounds_for("cpu"), EXACT)
        self._home = self._batches_suit = "cpu"
        self._fallback = Fallback()
        self._inference: Inference | None = None
        self._tiny: Encoded | None = None
        self._warmup_ms = 0
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
        if self._model is None:
            raise RuntimeError("the engine has not loaded a model yet")
        return self._model

    def recover_device(self) -> "Future[str | None]":
        """Bring the model back to the device it lost: none when it is there, else why not.

        Raises `QueueClosed`. What waits already is answered first.
        """
        errand = Errand(self._recover)
        self._queue.put(errand)
        return errand.result

    def _recover(self) -> str | None:
        model = self.model
        if model.device != self._wanted:
            reason = Inference(model, self._buckets, self._fallback).go_home()
            self._fit_batches_to(model.device)
            self._publish()
            if reason is not None:
                return reason
        return None if model.device == self._wanted else f"it was loaded on {model.device}"

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
            self._inference = self._tiny = None
            self._chores.put_down()
            self.model.unload()

    def _load(self) -> None:
        started = time.monotonic()
        log.info("importing torch and laya", phase="import")
        from omni_jev_worker import model as models

        log.info("imported torch and laya", phase="import", ms=_ms_since(started))
        models.set_threads(self._threads)
        self._choose_device(models.choose_device(self._requested), models.available)
        try:
            self._load_checkpoint(models.Model)
        except Refusal:
            raise
        except Exception as fault:
            if is_the_machines(fault):
                raise
            where = f"{self._checkpoint.name} ({self._checkpoint.folder})"
            raise unusable(where, fault) from fault
        # What is loaded now stays for good: the collector need not walk it again and again.
        gc.collect()
        gc.freeze()

    def _load_checkpoint(self, make: "type[Model]") -> None:
        """Load, warm up and publish. Whatever libraries raise here is raised."""
        log.info(f"loading {self._checkpoint.name}", phase="load", device=self._wanted)
        started = time.monotonic()
        tuned = not self._tuner.asked.is_plain
        loaded = make(self._checkpoint, self._wanted, to_be_tuned=tuned)
        log.info(
            f"loaded {self._checkpoint.name}",
            phase="load",
            ms=_ms_since(started),
            device=loaded.device,
        )
        self._check_device(loaded.home)
        self._home = loaded.home
        self._tuning = self._tuner.apply(loaded)
        if self._tuning.given.is_plain:
            self._choose_buckets(loaded)
        self._warm_up(loaded)
        self._model = loaded
        self._fit_batches_to(loaded.device)
        if self._inference is not None:
            self._chores.take_up(loaded, self._inference, self._tiny, self._tuning.given)
        self._publish()

    def _choose_device(self, device: str, available: Any) -> None:
        self._wanted = device
        if self._requested == "auto":
            log.info(f"no --device given: using {device}", phase="load")
        if not available(device):
            # Known before the weights are read, so a wrong machine costs no minute of loading.
            self._check_device("cpu")

    def _check_device(self, actual: str) -> None:
        if actual == self._wanted:
            return
        if self._require_device:
            raise Refusal(
                BAD_CONFIGURATION,
                f"--require-device: asked for {self._wanted}, "
                f"{self._checkpoint.name} would be on {actual}",
                kind=WRONG_DEVICE,
            )
        log.warning(
            f"asked for {self._wanted}, which is not available: serving from the {actual}",
            phase="load",
        )

    def _choose_buckets(self, loaded: "Model") -> None:
        """Choose the sizes that inputs are padded to, if padding changes no answer here.

        Some GPU kernels give numbers that are not finite for a padded row.
        """
        chosen = buckets.choose(self._length_buckets, loaded.device, loaded.window)
        if chosen != EXACT and (reason := warmup.against_padding(loaded, chosen)) is not None:
            log.warning(f"inputs are not padded on {loaded.device}: {reason}", phase="parity")
            chosen = EXACT
        self._buckets = chosen
        what = "are padded to length buckets" if chosen.lengths else "keep their lengths"
        log.info(f"inputs {what}", phase="load", length_buckets=list(chosen.lengths))

    def _prepare_trial(self, loaded: "Model") -> Trial | None:
        """Have the unpadded pass tried on the CPU, where it may answer as laya's own does."""
        plain = self._tuning.given.is_plain and self._forward != LAYA
        if not plain or loaded.device != "cpu" or self._buckets != EXACT:
            return None
        trial = trials.prepare(loaded, warmup.encoded(loaded), self._known)
        if (reason := loaded.pack()) is not None:
            log.warning(f"rows run as laya runs them: {reason}", phase="parity")
            return None
        return trial

    def _warm_up(self, loaded: "Model") -> None:
        trial = self._prepare_trial(loaded)
        started = time.monotonic()
        inference = Inference(loaded, self._buckets, self._fallback)
        scores = self._answer(loaded, warmup.encoded(loaded), inference)
        if trial is not None and (reason := trial.fault(scores)) is not None:
            log.warning(f"rows run as laya runs them: {reason}", phase="parity")
            loaded.unpack()
            scores = self._answer(loaded, trial.requests, inference)
        if any(isinstance(each, NotFinite) for each in scores):
            raise bad_configuration(
                f"checkpoint {self._checkpoint.name} gives numbers that are not finite "
                f"on {loaded.device}: its weights are damaged"
            )
        if loaded.is_packed:
            log.info("rows run unpadded", phase="load")
        self._warmup_ms = _ms_since(started)
        if loaded.device != self._home:
            # Memory ran out on the way.
            self._check_device(loaded.device)
        self._inference = inference

    def _answer(
        self, loaded: "Model", requests: "Sequence[tuple[str, Encoded]]", inference: Inference
    ) -> list[Scores | NotFinite]:
        """Answer the requests of the warm-up, one after the other."""
        found: list[Scores | NotFinite] = []
        for name, encoded in requests:
            begun = time.monotonic()
            if self._tiny is None:
                self._tiny = encoded
            scores = inference.run([encoded])[0]
            if isinstance(scores, Scores):
                loaded.decode(encoded, scores)
            elif not isinstance(scores, NotFinite):
                raise scores
            found.append(scores)
            log.info(f"warmed up: {name}", phase="warmup", ms=_ms_since(begun))
        return found

    def _start(self, batch: list[Slice]) -> "Callable[[], Any]":
        """Start a batch on a device that works by itself; elsewhere it runs when waited for."""
        if self._inference is None:
            raise RuntimeError("the engine has not loaded a model yet")
        started = time.monotonic()
        for piece in batch:
            piece.job.begun_at = piece.job.begun_at or started
        parts = [piece.job.encoded.part(piece.rows) for piece in batch]
        if self.model.is_tuned:
            wait = self._inference.start(parts)
        else:
            wait = partial(self._inference.run, parts)

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
        suiting = self._buckets if device == self._home else EXACT
        if self.model.takes_any_lengths and suiting == EXACT:
            self._batcher = PackedBatcher(PACKED if device == "cpu" else bounds_for(device))
        else:
            self._batcher = Batcher(bounds_for(device), suiting)
        if self._inference is not None:
            self._inference.buckets = suiting

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
        model = self.model
        state = ModelState(
            name=self._checkpoint.name,
            checkpoint=self._checkpoint.origin,
            revision=self._checkpoint.revision,
            released=self._checkpoint.released,
            device=model.device,
            device_mismatch=model.device != self._wanted,
            weights_dtype=model.weights_dtype,
            autocast_dtype=model.autocast_dtype,
            mps_amp_min_rows=model.mps_amp_min_rows,
            window=model.window,
            engine=model.engine,
            artifact=model.artifact,
            checkpoint_hash=self._hash_without_revision(),
            forward=self._forward_name(model),
            warmup_ms=self._warmup_ms,
        )
        self._snapshot = Snapshot(
            requested_device=self._requested,
            model=state,
            threads=self._threads,
            length_buckets=self._buckets.lengths,
            memory=MemoryState(
                device_bytes=model.device_bytes,
                lengths_seen=model.lengths_seen,
                releases=self._releases.count,
            ),
            fallback=self._fallback.state,
            kept_warm=self._chores.kept_warm,
            tuning=self._tuning,
            recheck=self._chores.recheck,
            compiled=CompiledState(
                active=model.runs_compiled,
                graphs=model.compiled_graphs,
                recorded=model.recorded_graphs,
            ),
        )

    def _hash_without_revision(self) -> str | None:
        """Tell which files a checkpoint has that no revision tells from others."""
        if self._known is None or self._checkpoint.revision is not None:
            return None
        return self._known.checkpoint_hash()

    def _forward_name(self, model: "Model") -> str:
        if model.engine != TORCH:
            return model.engine
        if model.is_tuned:
            return "network"
        return "packed" if model.is_packed and self._buckets == EXACT else LAYA


def _ms_since(start: float) -> int:
    return round(1000 * (time.monotonic() - start))

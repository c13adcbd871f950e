"""The one thread that owns torch: it imports it, loads, warms up, and runs every forward pass.

Two threads using a GPU through torch abort or hang the process on some systems, so nothing else
calls the model's device side. What others may know of it is published as a `Snapshot`.
"""

import gc
import os
import threading
import time
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final

from omni_jev_worker import log, warmup
from omni_jev_worker.checkpoints import Checkpoint
from omni_jev_worker.exits import FAILED, Refusal, bad_configuration
from omni_jev_worker.faults import is_the_machines, unusable
from omni_jev_worker.health import ModelState, Snapshot
from omni_jev_worker.queue import Errand, Job, RowQueue

if TYPE_CHECKING:
    # For the types alone: this module is imported before torch may be.
    from omni_jev_worker.model import Model

_STOP_SECONDS: Final = 1.0


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
    ) -> None:
        self._checkpoint = checkpoint
        self._queue = queue
        self._requested = device
        self._wanted = device
        self._require_device = require_device
        self._threads = threads
        self._model: Model | None = None
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

    @property
    def snapshot(self) -> Snapshot:
        """The state last published. Only after the future of `start` has completed."""
        if self._snapshot is None:
            raise RuntimeError("the engine has not published a state yet")
        return self._snapshot

    def model_for(self, name: str | None) -> "Model":  # noqa: ARG002 (one checkpoint serves all)
        """Give the model that answers to a name: so far the default answers to every one."""
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
        model = self.model_for(None)
        if model.device != self._wanted:
            try:
                model.return_to_device()
            except RuntimeError as fault:
                # Torch speaks of memory and devices here, never of a request.
                reason = (str(fault).strip().splitlines() or [type(fault).__name__])[0][:300]
                log.warning(f"the model cannot return to {self._wanted}: {reason}")
                return reason
            log.info(f"the model is back on {model.device}")
            self._publish()
        return None if model.device == self._wanted else f"it was loaded on {model.device}"

    def _run(self) -> None:
        try:
            self._load()
        except BaseException as fault:
            self._ready.set_exception(fault)
            return
        self._ready.set_result(None)
        try:
            while (job := self._queue.take()) is not None:
                if isinstance(job, Errand):
                    job.result.set_result(job.work())
                else:
                    self._answer(job)
        except BaseException as fault:
            # Without this thread nothing is ever answered again: a new process is the cure.
            log.error(f"the engine's thread ended: {log.where(fault)}")
            os._exit(FAILED)

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
        loaded = make(self._checkpoint, self._wanted)
        log.info(
            f"loaded {self._checkpoint.name}",
            phase="load",
            ms=_ms_since(started),
            device=loaded.device,
        )
        self._check_device(loaded.device)
        self._warm_up(loaded)
        self._model = loaded
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
            raise bad_configuration(
                f"--require-device: asked for {self._wanted}, "
                f"{self._checkpoint.name} would be on {actual}"
            )
        log.warning(
            f"asked for {self._wanted}, which is not available: serving from the {actual}",
            phase="load",
        )

    def _warm_up(self, loaded: "Model") -> None:
        started = time.monotonic()
        for request in warmup.requests(loaded.window, loaded.mps_amp_min_rows):
            begun = time.monotonic()
            encoded = loaded.encode(request.state, request.questions)
            scores = loaded.infer([encoded])[0]
            if isinstance(scores, Exception):
                raise bad_configuration(
                    f"checkpoint {self._checkpoint.name} gives numbers that are not finite "
                    f"on {loaded.device}: its weights are damaged"
                )
            loaded.decode(encoded, scores)
            log.info(f"warmed up: {request.name}", phase="warmup", ms=_ms_since(begun))
        self._warmup_ms = _ms_since(started)

    def _answer(self, job: Job) -> None:
        model = self.model_for(job.checkpoint)
        device = model.device
        started = time.monotonic()
        try:
            scores = model.infer([job.encoded])[0]
        except Exception as fault:
            # Only numbers came in here, so this text cannot quote a client, unlike elsewhere.
            reason = (str(fault).strip().splitlines() or [""])[0][:300]
            log.error(f"a forward pass failed: {reason} ({log.where(fault)})", rows=job.rows)
            job.result.set_exception(InferenceFailed())
        else:
            if isinstance(scores, Exception):
                log.error("the model gave numbers that are not finite", rows=job.rows)
                job.result.set_exception(InferenceFailed())
            else:
                job.result.set_result(scores)
        self._queue.ran(job.rows, time.monotonic() - started)
        if model.device != device:
            log.warning(f"the model moved from {device} to {model.device}: out of memory")
            self._publish()

    def _publish(self) -> None:
        model = self.model_for(None)
        state = ModelState(
            name=self._checkpoint.name,
            checkpoint=self._checkpoint.origin,
            revision=self._checkpoint.revision,
            device=model.device,
            device_mismatch=model.device != self._wanted,
            weights_dtype=model.weights_dtype,
            autocast_dtype=model.autocast_dtype,
            mps_amp_min_rows=model.mps_amp_min_rows,
            window=model.window,
            warmup_ms=self._warmup_ms,
        )
        self._snapshot = Snapshot(
            requested_device=self._requested,
            default=state,
            loaded=(state,),
            preparing=(),
            threads=self._threads,
        )


def _ms_since(start: float) -> int:
    return round(1000 * (time.monotonic() - start))

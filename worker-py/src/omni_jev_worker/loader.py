"""From a checkpoint's files to a model that is warm: which device, in which form, proved or tried.

Runs on the engine's thread, where torch is imported too.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from omni_jev_worker import buckets, log, warmup
from omni_jev_worker import trial as trials
from omni_jev_worker.buckets import EXACT, Buckets
from omni_jev_worker.checkpoints import Checkpoint
from omni_jev_worker.exits import BAD_CONFIGURATION, WRONG_DEVICE, Refusal, bad_configuration
from omni_jev_worker.fallback import Fallback
from omni_jev_worker.faults import is_the_machines, unusable
from omni_jev_worker.inference import Inference
from omni_jev_worker.known_answers import KnownAnswers
from omni_jev_worker.scores import NotFinite, Scores
from omni_jev_worker.trial import Trial
from omni_jev_worker.tuner import Tunes, TuningState

if TYPE_CHECKING:
    # For the types alone: this module is imported before torch may be.
    from omni_jev_worker.model import Encoded, Model

LAYA: Final = "laya"
"""The pass that is laya's own, for ``--forward``."""


@dataclass(frozen=True, slots=True)
class Warm:
    """A model that is warm, and what was found on the way."""

    model: "Model"
    wanted: str
    """The device that was asked for, or chosen."""
    home: str
    """The one that the model was loaded for."""
    tuning: TuningState
    buckets: Buckets
    """What rows are padded to at home."""
    inference: Inference
    tiny: "Encoded | None" = None
    """The smallest request that it has answered."""
    warmup_ms: int = 0


@dataclass(frozen=True, slots=True)
class Loader:
    """What to load, and how it is to run."""

    checkpoint: Checkpoint
    device: str
    """As ``--device`` has it."""
    require_device: bool
    threads: int
    """Of torch on the CPU."""
    length_buckets: str | tuple[int, ...]
    forward: str
    """`buckets.AUTO`, or `LAYA` for laya's own pass."""
    tuner: Tunes
    """Knows in which precision the model runs, whether compiled, and by which engine."""
    known: KnownAnswers | None
    """Where laya's own answers are kept from one start to the next."""
    fallback: Fallback

    def load(self) -> Warm:
        """Do all of it. Raises `Refusal`, and what another start may cure."""
        started = time.monotonic()
        log.info("importing torch and laya", phase="import")
        from omni_jev_worker import model as models

        log.info("imported torch and laya", phase="import", ms=_ms_since(started))
        models.set_threads(self.threads)
        wanted = self._choose_device(models.choose_device(self.device), models.available)
        try:
            return self._load(models.Model, wanted)
        except Refusal:
            raise
        except Exception as fault:
            if is_the_machines(fault):
                raise
            where = f"{self.checkpoint.name} ({self.checkpoint.folder})"
            raise unusable(where, fault) from fault

    def _load(self, make: "type[Model]", wanted: str) -> Warm:
        """Whatever libraries raise here is raised."""
        log.info(f"loading {self.checkpoint.name}", phase="load", device=wanted)
        started = time.monotonic()
        model = make(self.checkpoint, wanted, to_be_tuned=not self.tuner.asked.is_plain)
        log.info(
            f"loaded {self.checkpoint.name}",
            phase="load",
            ms=_ms_since(started),
            device=model.device,
        )
        self._check_device(model.home, wanted)
        home = model.home
        tuning = self.tuner.apply(model)
        plain = tuning.given.is_plain
        padded = self._choose_buckets(model) if plain else EXACT
        requests = warmup.encoded(model)
        trial = self._prepare_trial(model, requests) if plain and padded == EXACT else None
        started = time.monotonic()
        inference = Inference(model, padded, self.fallback)
        self._warm_up(model, requests, inference, trial)
        warmup_ms = _ms_since(started)
        if model.device != home:
            # Memory ran out on the way.
            self._check_device(model.device, wanted)
        tiny = requests[0][1] if requests else None
        return Warm(model, wanted, home, tuning, padded, inference, tiny, warmup_ms)

    def _choose_device(self, device: str, available: Any) -> str:
        if self.device == "auto":
            log.info(f"no --device given: using {device}", phase="load")
        if not available(device):
            # Known before the weights are read, so a wrong machine costs no minute of loading.
            self._check_device("cpu", device)
        return device

    def _check_device(self, actual: str, wanted: str) -> None:
        if actual == wanted:
            return
        if self.require_device:
            raise Refusal(
                BAD_CONFIGURATION,
                f"--require-device: asked for {wanted}, "
                f"{self.checkpoint.name} would be on {actual}",
                kind=WRONG_DEVICE,
            )
        log.warning(
            f"asked for {wanted}, which is not available: serving from the {actual}",
            phase="load",
        )

    def _choose_buckets(self, model: "Model") -> Buckets:
        """Choose the sizes that inputs are padded to, if padding changes no answer here.

        Some GPU kernels give numbers that are not finite for a padded row.
        """
        chosen = buckets.choose(self.length_buckets, model.device, model.window)
        if chosen != EXACT and (reason := warmup.against_padding(model, chosen)) is not None:
            log.warning(f"inputs are not padded on {model.device}: {reason}", phase="parity")
            chosen = EXACT
        what = "are padded to length buckets" if chosen.lengths else "keep their lengths"
        log.info(f"inputs {what}", phase="load", length_buckets=list(chosen.lengths))
        return chosen

    def _prepare_trial(
        self, model: "Model", requests: "Sequence[tuple[str, Encoded]]"
    ) -> Trial | None:
        """Have the unpadded pass tried on the CPU, where it may answer as laya's own does."""
        if self.forward == LAYA or model.device != "cpu":
            return None
        trial = trials.prepare(model, requests, self.known)
        if (reason := model.pack()) is not None:
            log.warning(f"rows run as laya runs them: {reason}", phase="parity")
            return None
        return trial

    def _warm_up(
        self,
        model: "Model",
        requests: "Sequence[tuple[str, Encoded]]",
        inference: Inference,
        trial: Trial | None,
    ) -> None:
        """Answer the requests of the warm-up; as laya does, if a trial finds other answers."""
        scores = _answer(model, requests, inference)
        if trial is not None and (reason := trial.fault(scores)) is not None:
            log.warning(f"rows run as laya runs them: {reason}", phase="parity")
            model.unpack()
            scores = _answer(model, requests, inference)
        if any(isinstance(each, NotFinite) for each in scores):
            raise bad_configuration(
                f"checkpoint {self.checkpoint.name} gives numbers that are not finite "
                f"on {model.device}: its weights are damaged"
            )
        if model.is_packed:
            log.info("rows run unpadded", phase="warmup")


def _answer(
    model: "Model", requests: "Sequence[tuple[str, Encoded]]", inference: Inference
) -> list[Scores | NotFinite]:
    """Answer requests one after the other."""
    found: list[Scores | NotFinite] = []
    for name, encoded in requests:
        begun = time.monotonic()
        scores = inference.run([encoded])[0]
        if isinstance(scores, Scores):
            model.decode(encoded, scores)
        elif not isinstance(scores, NotFinite):
            raise scores
        found.append(scores)
        log.info(f"warmed up: {name}", phase="warmup", ms=_ms_since(begun))
    return found


def _ms_since(start: float) -> int:
    return round(1000 * (time.monotonic() - start))

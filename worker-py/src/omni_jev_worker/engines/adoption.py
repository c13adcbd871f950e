"""Has a model run by an engine other than torch: its artifact, the parity gate, then the engine.

What was asked for by name runs or is refused; nothing else takes its place.
"""

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from omni_jev_worker import log
from omni_jev_worker.artifacts import proof as proofs
from omni_jev_worker.artifacts.build import build
from omni_jev_worker.artifacts.key import Key
from omni_jev_worker.artifacts.manifest import Corrupt
from omni_jev_worker.artifacts.store import Artifact, Store, may_not_write
from omni_jev_worker.checkpoints import Checkpoint
from omni_jev_worker.engines import known
from omni_jev_worker.engines.forward import Engine, Foreign, Unavailable
from omni_jev_worker.exits import Refusal, bad_configuration
from omni_jev_worker.faults import is_the_machines, one_line
from omni_jev_worker.known_answers import KnownAnswers
from omni_jev_worker.parity import Reference, Report, shown, take_reference
from omni_jev_worker.tuner import TuningState
from omni_jev_worker.tuning import PLAIN, Tuning

if TYPE_CHECKING:
    # For the types alone: this module is imported before torch may be.
    from omni_jev_worker.model import Model


@dataclass(slots=True)
class Adoption:
    """What is to run a model, and where its artifacts are."""

    asked: Tuning
    checkpoint: Checkpoint
    store: Store
    threads: int
    known: KnownAnswers
    """Where the answers of full precision are kept from one start to the next."""
    compares: bool = False
    """Run the gate whatever is known, and tell what it found instead of refusing."""
    require_parity: bool = False
    """End when what ran no longer agrees; at the start the gate is insisted on in any case."""
    rechecks: bool = False
    """Have the reference though the artifact is proved: it is compared with again."""
    reference: Reference | None = field(default=None, init=False)
    _artifact: Artifact | None = field(default=None, init=False)

    def apply(self, model: "Model") -> TuningState:
        """Give a model that was loaded on the CPU to its engine.

        Raises `Refusal` with the reason why it cannot be, and what the libraries raise.
        """
        # Not in the `try`: where these cannot be read, the checkpoint is at fault.
        source = self.known.checkpoint_hash()
        try:
            return self._apply(known.find(self.asked.engine), model, source)
        except Unavailable as fault:
            raise self._refusal(str(fault)) from None
        except Corrupt as fault:
            raise self._refusal(f"its artifact {fault}") from None
        except OSError as fault:
            if is_the_machines(fault):
                raise
            what = f"{fault.filename}: {fault.strerror}" if fault.filename else str(fault)
            reason = f"--artifacts {self.store.root} cannot be used ({what})"
            raise self._refusal(reason) from None

    def _apply(self, engine: Engine, model: "Model", source: str) -> TuningState:
        engine.check_system()
        tools = engine.check()
        key = Key(source, self.asked.engine, engine.bucket, self.asked.weights)
        with self.store.locked(key):
            artifact = self.store.find(key)
            if artifact is None:
                artifact = build(self.store, key, engine, self.checkpoint, model)
            report = None if self.compares else proofs.proven(artifact.manifest, tools)
            # Before the model is the engine's: the reference is torch's.
            reference = None
            if report is None or self.rechecks:
                reference, _ = take_reference(model, self.known, self.asked.weights)
            begun = time.monotonic()
            forward = engine.load(artifact.folder, model.window, self.threads)
            tree = artifact.manifest.tree
            model.adopt(Foreign(engine.name, engine.device, self.asked.weights, tree, forward))
            ms = round(1000 * (time.monotonic() - begun))
            log.info(f"loaded {key}", phase="load", ms=ms, engine=engine.name)
            self._artifact = artifact
            if reference is not None:
                self.reference = reference.of(model.takes)
            if report is None and self.reference is not None:
                report = self._prove(artifact, self.reference, model, engine)
        if report is None or report.fault is not None:
            # Only where it compares: `_prove` has refused otherwise.
            model.adopt(None)
            fault = report.fault if report is not None and report.fault is not None else "?"
            return TuningState(self.asked, PLAIN, (f"{self.asked}: {fault}",), report)
        model.drop_torch()
        return TuningState(self.asked, self.asked, (), report)

    def distrust(self, report: Report) -> None:
        """Put what was found in the place of the proof, so that the next start proves it anew."""
        if self._artifact is None:
            return
        try:
            # Without its lock, which another process may hold for minutes: it is one rename.
            self._note(self._artifact, report, known.find(self.asked.engine))
        except OSError as fault:
            log.warning(f"the proof of an artifact cannot be taken back: {fault.strerror or fault}")

    def _prove(
        self, artifact: Artifact, reference: Reference, model: "Model", engine: Engine
    ) -> Report:
        begun = time.monotonic()
        report = reference.compare(model)
        seconds = round(time.monotonic() - begun, 3)
        self._keep(artifact, report, engine, seconds)
        if report.fault is None:
            log.info(
                f"{self.asked}: its answers are those of full precision on the CPU",
                phase="parity",
                largest_difference=shown(report.largest),
                rows=len(report.rows),
                ms=round(1000 * seconds),
            )
        elif not self.compares:
            raise self._refusal(f"the parity gate is shut: {report.fault}")
        return report

    def _keep(self, artifact: Artifact, report: Report, engine: Engine, seconds: float) -> None:
        """Keep what was found in so many seconds, where the artifact may be written."""
        try:
            self._note(artifact, report, engine, seconds=seconds)
        except OSError as denied:
            if not may_not_write(denied):
                raise
            what = f"what the parity gate found cannot be kept ({denied.strerror})"
            log.warning(f"{what}: the next start compares again", phase="parity")

    def _note(self, artifact: Artifact, report: Report, engine: Engine, **measured: float) -> None:
        """Keep with the artifact what was found last. Raises `OSError`."""
        proof = proofs.proof_of(report, artifact.manifest, engine.check())
        artifact.manifest.with_proof(proof | measured).write(artifact.folder)

    def _refusal(self, reason: str) -> Refusal:
        return bad_configuration(f"{self.asked}: {one_line(reason, 400)}")

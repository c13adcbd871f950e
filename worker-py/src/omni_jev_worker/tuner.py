"""Makes a model run as asked, proves its answers, and takes back what does not hold.

What was asked for is tried first, then less of it: an option that the compiler or the parity gate
refuses is switched off, in the log, in `/health`, and in the exit code where that was asked.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from omni_jev_worker import log
from omni_jev_worker.exits import bad_configuration
from omni_jev_worker.faults import one_line
from omni_jev_worker.known_answers import KnownAnswers
from omni_jev_worker.parity import Reference, Report, shown, take_reference
from omni_jev_worker.tuning import BF16, FP32, PLAIN, CannotTune, Tuning

if TYPE_CHECKING:
    # For the types alone: this module is imported before torch may be.
    from omni_jev_worker.model import Model


@dataclass(frozen=True, slots=True)
class TuningState:
    """What was asked for, what is done, and why that is less."""

    asked: Tuning = PLAIN
    given: Tuning = PLAIN
    reasons: tuple[str, ...] = ()
    parity: Report | None = None
    """Of what is done; of what was tried last where nothing is."""
    graphs: int = 0
    """Pieces of code that the compiler had made when the model was ready."""

    @property
    def is_less(self) -> bool:
        """Whether something that was asked for is off."""
        return self.asked != self.given


class Tunes(Protocol):
    """Makes a model run as asked: a `Tuner`, or an `engines.adoption.Adoption`."""

    asked: Tuning
    require_parity: bool
    reference: Reference | None
    """What the gate compared with, once it has; none where it compared nothing."""

    def apply(self, model: "Model") -> TuningState:
        """Do it, on the engine's thread, and say what was done. Raises `Refusal`."""

    def distrust(self, report: Report) -> None:
        """Take a later report that what was done no longer holds, for the next start."""


@dataclass(slots=True)
class Tuner:
    """What to try, and what to insist on."""

    asked: Tuning
    require_compile: bool = False
    require_parity: bool = False
    known: KnownAnswers | None = None
    """Where the answers of full precision are kept from one start to the next."""
    runs_anywhere: bool = False
    """Tune on the CPU too, to no gain: for the tests."""
    reference: Reference | None = field(default=None, init=False)
    _reasons: list[str] = field(default_factory=list)

    def apply(self, model: "Model") -> TuningState:
        """Tune a model that was loaded on the device where it is to run.

        Raises `Refusal` where what was insisted on cannot be had, and what torch raises for a model
        that runs in no way.
        """
        if self.asked.is_plain:
            return TuningState()
        if (reason := self._unsuited(model.home)) is not None:
            self._refuse(self.asked, reason, compiler=self.asked.compiled)
            model.untune()
            return self._done(PLAIN, None, model)
        model.move_to_cpu()
        reference, _ = take_reference(model, self.known, self.asked.weights)
        self.reference = reference
        report: Report | None = None
        compiles = True
        for tuning in _less_and_less(self.asked):
            if tuning.compiled and not compiles:
                continue
            found = self._attempt(model, tuning, reference)
            if found is None:
                compiles = False
                continue
            report = found
            if found.fault is None:
                return self._done(tuning, report, model)
        model.untune()
        return self._done(PLAIN, report, model)

    def distrust(self, report: Report) -> None:
        """Do nothing: every start proves its answers anew."""

    def _unsuited(self, device: str) -> str | None:
        """Say why a device cannot do what was asked for at all; none if it may."""
        if device == "cpu" and not self.runs_anywhere and self.asked != Tuning(BF16):
            return "the model is on the CPU, where laya's own precision is the fastest"
        if device != "cpu" and self.asked.weights == BF16:
            return f"the model is on {device}: --weights fp16 is for that"
        return None

    def _attempt(self, model: "Model", tuning: Tuning, reference: Reference) -> Report | None:
        """Try one way; none where the model cannot run in it."""
        begun = time.monotonic()
        log.info(f"preparing {tuning}", phase="compile" if tuning.compiled else "load")
        try:
            model.tune(tuning)
            model.prepare(reference.rows)
            if tuning.compiled and model.compiled_graphs == 0:
                raise RuntimeError("it let the code run as it was")
        except CannotTune as fault:
            self._refuse(tuning, str(fault), compiler=False)
            return None
        except Exception as fault:
            if not tuning.compiled:
                raise
            reason = one_line(str(fault) or type(fault).__name__, 300)
            self._refuse(tuning, f"the compiler failed: {reason}", compiler=True)
            return None
        log.info(
            f"prepared {tuning}",
            phase="compile" if tuning.compiled else "load",
            ms=round(1000 * (time.monotonic() - begun)),
            graphs=model.compiled_graphs,
        )
        report = reference.compare(model)
        if report.fault is not None:
            self._refuse(tuning, report.fault, compiler=False)
        else:
            log.info(
                f"{tuning}: its answers are those of full precision on the CPU",
                phase="parity",
                largest_difference=shown(report.largest),
                rows=len(report.rows),
            )
        return report

    def _refuse(self, tuning: Tuning, reason: str, *, compiler: bool) -> None:
        if compiler and self.require_compile:
            raise bad_configuration(f"--require-compile: {reason}")
        if not compiler and self.require_parity:
            raise bad_configuration(f"--require-parity: {tuning}: {reason}")
        self._reasons.append(f"{tuning}: {reason}")
        log.warning(f"{tuning} is off: {reason}", phase="parity")

    def _done(self, given: Tuning, report: Report | None, model: "Model") -> TuningState:
        if self.require_compile and self.asked.compiled and not given.compiled:
            raise bad_configuration(f"--require-compile: {'; '.join(self._reasons)}")
        model.end_compiler()
        return TuningState(self.asked, given, tuple(self._reasons), report, model.compiled_graphs)


def _less_and_less(asked: Tuning) -> Iterator[Tuning]:
    """Give what was asked for, then each half of it where it has two."""
    yield asked
    if asked.compiled and asked.weights != FP32:
        yield Tuning(asked.weights)
        yield Tuning(FP32, compiled=True)

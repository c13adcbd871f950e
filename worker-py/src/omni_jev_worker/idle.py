"""What the engine's thread does while nobody asks anything of it: one small thing at a time."""

import os
from typing import TYPE_CHECKING, Protocol

from omni_jev_worker import log
from omni_jev_worker.exits import FAILED
from omni_jev_worker.inference import Inference
from omni_jev_worker.parity import Report
from omni_jev_worker.recheck import NOTHING, Recheck, RecheckState
from omni_jev_worker.tuner import Tunes
from omni_jev_worker.tuning import Tuning

if TYPE_CHECKING:
    # For the types alone: this module is imported before torch may be.
    from omni_jev_worker.model import Encoded, Model


class Chore(Protocol):
    """Something to be done now and then."""

    def due_in(self, now: float, served_at: float) -> float:
        """Say in how many seconds it may be done, at most 0 for now.

        ``served_at`` is when the last request's rows had run; both are of `time.monotonic`.
        """

    def do(self, now: float) -> None:
        """Do it, or one step of it: whoever asks meanwhile waits for that."""


class KeepWarm:
    """Runs a tiny batch after so long an idle time, so that the device does not slow down."""

    def __init__(self, seconds: float, inference: Inference, tiny: "Encoded") -> None:
        self._seconds = seconds
        self._inference = inference
        self._tiny = tiny
        self._ran_at = 0.0
        self.count = 0
        """How often it ran."""

    def due_in(self, now: float, served_at: float) -> float:
        """Give what is left of the idle time."""
        return max(served_at, self._ran_at) + self._seconds - now

    def do(self, now: float) -> None:
        """Run the batch."""
        self._ran_at = now
        self._inference.run([self._tiny])
        self.count += 1


class Chores:
    """What one engine has to do. Used on its thread alone."""

    def __init__(self, tuner: Tunes, *, keep_warm: float | None, recheck: float | None) -> None:
        """Take the idle seconds after which a tiny batch runs, and those between two checks.

        ``tuner`` is told of a check that fails, and knows what is then insisted on.
        """
        self._tuner = tuner
        self._warm_after = keep_warm
        self._check_after = recheck
        self._keep_warm: KeepWarm | None = None
        self._recheck: Recheck | None = None

    def take_up(
        self, model: "Model", inference: Inference, tiny: "Encoded | None", given: Tuning
    ) -> None:
        """Begin, for a model that is warm and runs in some way."""
        if self._warm_after is not None and tiny is not None:
            self._keep_warm = KeepWarm(self._warm_after, inference, tiny)
        reference = self._tuner.reference
        # Where the gate left laya's own pass in place, that is the reference.
        if self._check_after is not None and reference is not None and not given.is_plain:
            self._recheck = Recheck(
                self._check_after, model, reference, inference.run, failed=self._doubt
            )

    def put_down(self) -> None:
        """End, and let go of the model."""
        self._keep_warm = self._recheck = None

    def due_in(self, now: float, served_at: float) -> float | None:
        """Say in how many seconds the first is due; none if there are none."""
        waits = [each.due_in(now, served_at) for each in self._those]
        return max(0.0, min(waits)) if waits else None

    def do_one(self, now: float, served_at: float) -> bool:
        """Do the one that has been due for longest, and say whether there was one."""
        first = min(self._those, key=lambda each: each.due_in(now, served_at), default=None)
        if first is None or first.due_in(now, served_at) > 0:
            return False
        first.do(now)
        return True

    @property
    def kept_warm(self) -> int:
        """How often the tiny batch ran."""
        return self._keep_warm.count if self._keep_warm is not None else 0

    @property
    def recheck(self) -> RecheckState:
        """What is known of the checks."""
        if self._recheck is not None:
            return self._recheck.state
        nothing = NOTHING if self._check_after is not None else None
        return RecheckState(self._check_after, nothing=nothing)

    @property
    def _those(self) -> list[Chore]:
        return [each for each in (self._keep_warm, self._recheck) if each is not None]

    def _doubt(self, report: Report) -> None:
        """Take back what was proved, and end where that is insisted on."""
        self._tuner.distrust(report)
        if self._tuner.require_parity:
            # The next start runs the gate: it cures what a new process cures, and refuses the rest.
            log.error(f"--require-parity: {report.fault}; the worker ends, to be started anew")
            os._exit(FAILED)

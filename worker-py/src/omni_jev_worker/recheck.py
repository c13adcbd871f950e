"""The parity gate's rows again while the worker serves, in moments in which nobody asks.

What answered as full precision does when it started may not for ever: memory fails, a driver or a
file under a running process changes. The rows go the way that requests go, one row at a time, and
are compared with the answers that were taken before anything was tuned.
"""

import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from omni_jev_worker import log
from omni_jev_worker.parity import Reference, Report, shown

if TYPE_CHECKING:
    # For the types alone: this module is imported before torch may be.
    from omni_jev_worker.model import Encoded, Model
    from omni_jev_worker.scores import Scores

# How long nobody must have asked before a row runs. A client that asks the next question when it
# has an answer does so sooner, and then waits for no row.
_QUIET_SECONDS: Final = 0.1

NOTHING: Final = "nothing that the parity gate covers runs: laya's own pass answers"
"""Why nothing is checked where what was asked for is off."""


@dataclass(frozen=True, slots=True)
class RecheckState:
    """What `/health` says of it."""

    every: float | None = None
    """The seconds from one check to the next; none where none was asked for."""
    count: int = 0
    """Checks that have ended."""
    report: Report | None = None
    """The newest one's."""
    nothing: str | None = None
    """Why there is nothing to check, if so."""

    @property
    def fault(self) -> str | None:
        """Say why the newest check failed; none if it passed, and before the first."""
        return self.report.fault if self.report is not None else None


class Recheck:
    """Checks one model again and again. A chore of the engine's thread."""

    def __init__(
        self,
        every: float,
        model: "Model",
        reference: Reference,
        run: "Callable[[Sequence[Encoded]], Sequence[Scores | Exception]]",
        *,
        failed: Callable[[Report], None],
    ) -> None:
        """Take how often, what with, and the way that requests' rows go.

        ``failed`` is called for a check that fails after one that passed.
        """
        self._every = every
        self._model = model
        self._reference = reference
        self._run = run
        self._failed = failed
        self._due_at = time.monotonic() + every
        self._device = model.device
        self._going: Generator[None, None, Report] | None = None
        self.state = RecheckState(every)

    def due_in(self, now: float, served_at: float) -> float:
        """Wait for a quiet moment, but not for longer than from one check to the next.

        After that any moment will do in which no request waits.
        """
        wait = self._due_at - now
        if wait > 0 or -wait >= self._every:
            return wait
        return served_at + _QUIET_SECONDS - now

    def do(self, now: float) -> None:  # noqa: ARG002 (what it is told is the time of its beginning)
        """Run one row, or a few short ones together; conclude after the last."""
        if self._going is None or self._model.device != self._device:
            # What ran elsewhere says nothing of where requests' rows run now.
            self._device = self._model.device
            self._going = self._reference.compare_in_steps(self._model, self._run)
        try:
            next(self._going)
        except StopIteration as end:
            self._going = None
            self._due_at = time.monotonic() + self._every
            self._conclude(end.value)

    def _conclude(self, report: Report) -> None:
        before, fault = self.state.fault, report.fault
        self.state = replace(self.state, count=self.state.count + 1, report=report)
        if fault is not None and before is None:
            log.error(
                "checked again, the answers are no longer those of full precision on the CPU: "
                f"{fault}",
                rows=len(report.rows),
            )
            self._failed(report)
        elif fault is None and before is not None:
            log.info(
                "checked again, the answers are those of full precision on the CPU, as before",
                rows=len(report.rows),
                largest_difference=shown(report.largest),
            )

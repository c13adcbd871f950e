"""Runs a batch, and finds a way for each of its requests when the batch as a whole fails.

- Numbers that are not finite, or any other failure: each request is run alone and without padding,
  and only one that fails alone as well has failed.
- Memory runs out on the device: the batch is run in halves, down to single rows; a row that does
  not fit alone either is answered on the CPU, and the model goes back to its device.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NoReturn

from omni_jev_worker import log
from omni_jev_worker.buckets import EXACT, Buckets
from omni_jev_worker.fallback import Fallback
from omni_jev_worker.faults import first_line, one_line
from omni_jev_worker.memory import OutOfMemory
from omni_jev_worker.scores import NotFinite, Scores, join

if TYPE_CHECKING:
    # For the types alone: this module is imported before torch may be.
    from omni_jev_worker.model import Encoded, Model


class Inference:
    """The ways of one model. Used on the engine's thread alone."""

    def __init__(self, model: "Model", buckets: Buckets, fallback: Fallback) -> None:
        self._model = model
        self.buckets = buckets
        """What inputs are padded to; the engine changes it when the model changes its device."""
        self._fallback = fallback

    def run(self, batch: "Sequence[Encoded]") -> list[Scores | Exception]:
        """Run rows of several requests; give each request's scores, or why there are none.

        The reason is in the log.
        """
        self._go_home_if_due()
        return self._settle(batch, lambda: self._model.infer(batch, self.buckets))

    def start(self, batch: "Sequence[Encoded]") -> "Callable[[], list[Scores | Exception]]":
        """Start to run rows on a device that works by itself; what this gives waits for them.

        Meanwhile more can be started. What fails is run again by the one that waits.
        """
        self._go_home_if_due()
        try:
            wait = self._model.start(batch, self.buckets).results
        except Exception as fault:
            failed = fault

            def wait() -> NoReturn:
                raise failed

        return lambda: self._settle(batch, wait)

    def _settle(
        self, batch: "Sequence[Encoded]", wait: "Callable[[], list[Scores | NotFinite]]"
    ) -> list[Scores | Exception]:
        """Give the results of a batch, and run again what failed."""
        try:
            results: list[Scores | Exception] = list(wait())
        except OutOfMemory as fault:
            return self._run_in_parts(batch, str(fault))
        except Exception as fault:
            if self._stop_compiling(fault):
                return self._settle(batch, lambda: self._model.infer(batch, self.buckets))
            results = [fault] * len(batch)
        if not any(isinstance(result, Exception) for result in results):
            return results
        tried_alone = len(batch) == 1 and self.buckets == EXACT
        return [
            self._alone(encoded, result, tried_alone) if isinstance(result, Exception) else result
            for encoded, result in zip(batch, results, strict=True)
        ]

    def _alone(
        self,
        encoded: "Encoded",
        fault: Exception,
        tried: bool,  # noqa: FBT001 (private, and named where it is given)
    ) -> Scores | Exception:
        """Run a request that failed in company or padded, and log it if it fails alone too."""
        if not tried:
            log.warning(f"a batch failed: {_reason(fault)}; its requests are run one by one")
            try:
                result = self._model.infer([encoded])[0]
            except OutOfMemory as shortage:
                return self._run_in_parts([encoded], str(shortage))[0]
            except Exception as again:
                fault = again
            else:
                if not isinstance(result, Exception):
                    return result
                fault = result
        log.error(f"a forward pass failed: {_reason(fault)}", rows=len(encoded.items))
        return fault

    def _stop_compiling(self, fault: Exception) -> bool:
        """Run uncompiled from now on, if it was compiled code that failed."""
        if not self._model.runs_compiled:
            return False
        log.warning(f"compiled code failed, the model runs uncompiled: {_reason(fault)}")
        self._model.stop_compiling()
        return True

    def _run_in_parts(self, batch: "Sequence[Encoded]", reason: str) -> list[Scores | Exception]:
        rows = [encoded.part([row]) for encoded in batch for row in range(len(encoded.items))]
        log.warning(
            f"no memory for a batch on {self._model.device}: {reason}; it is run in parts",
            rows=len(rows),
        )
        self._fallback.split(reason)
        self._model.release_memory()
        found = self._halve(rows) if len(rows) > 1 else self._single(rows[0])
        self._answer_on_cpu(rows, found)
        results: list[Scores | Exception] = []
        start = 0
        for encoded in batch:
            own = found[start : start + len(encoded.items)]
            failed = next((each for each in own if isinstance(each, Exception)), None)
            if failed is not None:
                log.error(f"a forward pass failed: {_reason(failed)}", rows=len(own))
            good = [each for each in own if not isinstance(each, Exception)]
            results.append(failed if failed is not None else join(good))
            start += len(own)
        return results

    def _halve(self, rows: "Sequence[Encoded]") -> list[Scores | Exception]:
        middle = len(rows) // 2
        return [*self._part(rows[:middle]), *self._part(rows[middle:])]

    def _part(self, rows: "Sequence[Encoded]") -> list[Scores | Exception]:
        """Run some rows; those without memory get an `OutOfMemory` as their result."""
        if len(rows) == 1:
            return self._single(rows[0])
        try:
            return list(self._model.infer(rows, self.buckets))
        except OutOfMemory:
            self._model.release_memory()
            return self._halve(rows)
        except Exception as fault:
            return [fault] * len(rows)

    def _single(self, row: "Encoded") -> list[Scores | Exception]:
        try:
            return list(self._model.infer([row]))
        except Exception as fault:
            return [fault]

    def _answer_on_cpu(self, rows: "Sequence[Encoded]", found: list[Scores | Exception]) -> None:
        """Replace the results of the rows that no device memory was left for."""
        model = self._model
        without = [at for at, each in enumerate(found) if isinstance(each, OutOfMemory)]
        if not without or model.device == "cpu":
            return
        reason = str(found[without[0]])
        log.warning(f"answered on the CPU: {reason}", rows=len(without))
        self._fallback.answered_on_cpu(len(without), reason)
        model.move_to_cpu()
        for at in without:
            found[at] = self._single(rows[at])[0]
        self.go_home()

    def _go_home_if_due(self) -> None:
        if self._fallback.try_return():
            self.go_home()

    def go_home(self) -> str | None:
        """Bring the model back to its device: none when it is there, else why not."""
        try:
            self._model.return_to_device()
        except RuntimeError as fault:
            reason = first_line(fault)
            log.warning(f"the model cannot return to its device, and serves from the CPU: {reason}")
            self._fallback.device_lost(reason)
            return reason
        if self._fallback.state.since is not None:
            log.info(f"the model is back on {self._model.device}")
        self._fallback.device_back()
        return None


def _reason(fault: Exception) -> str:
    """Say what failed. Only numbers come in here, so this text cannot quote a client."""
    return f"{one_line(str(fault)) or type(fault).__name__} ({log.where(fault)})"

"""Whether a tuned model answers as laya does in full precision on the CPU, measured here and now.

The rows are those of `golden`. Each is run alone and all together, and every probability is held
against the reference: the largest difference, decisions that differ although the reference was sure
(a hard mismatch), numbers that are not finite, and a repeated call that gives other numbers each
fail the gate. Of a lossy precision few may come near to the tolerance either: where many do, others
that are not among these rows are past it.
"""

import math
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from omni_jev_worker import golden, log
from omni_jev_worker.scores import NotFinite, Scores
from omni_jev_worker.tuning import FP32

if TYPE_CHECKING:
    # For the types alone: this module is imported before torch may be.
    from omni_jev_worker.known_answers import KnownAnswers
    from omni_jev_worker.model import Encoded, Model

TOLERANCE: Final = 0.02
"""The most that a probability may differ."""

_TELL_SECONDS: Final = 10.0

# Of the rows of a lossy precision, how many may differ by over half of the tolerance.
_MOST_NEAR: Final = 1 / 40


@dataclass(frozen=True, slots=True)
class RowResult:
    """One row against its reference."""

    name: str
    tokens: int
    options: int
    alone: float
    """The largest difference of a probability, in a pass of its own."""
    together: float
    """The same in passes with others; 0 if there was none."""
    act: float
    """The largest difference of the probability to act, of both."""
    hard_mismatch: bool
    near_tie: bool
    """Another decision where the reference's two best are about as likely."""


def shown(difference: float) -> float | None:
    """Give three digits of a difference, however small it is; none of one that is no number."""
    return float(f"{difference:.3g}") if math.isfinite(difference) else None


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


@dataclass(frozen=True, slots=True)
class Report:
    """What the gate found."""

    rows: tuple[RowResult, ...]
    finite: bool
    repeatable: bool
    broken: str | None = None
    """Why a row could not be run at all, if so."""
    checked_at: str = field(default_factory=_now)
    """When the rows ran (UTC, ISO 8601)."""
    lossy: bool = False
    """Whether it is of one of `golden.LOSSY`."""

    @property
    def largest(self) -> float:
        """The largest difference of any probability; infinite where one is no number."""
        return max((_most(row) for row in self.rows), default=0.0)

    @property
    def worst(self) -> str:
        """The name of the row that has it."""
        return max(self.rows, key=_most).name if self.rows else ""

    @property
    def hard_mismatches(self) -> int:
        """Rows whose decision differs although the reference is sure."""
        return sum(row.hard_mismatch for row in self.rows)

    @property
    def near_ties(self) -> int:
        """Rows whose decision differs where it could go either way."""
        return sum(row.near_tie for row in self.rows)

    @property
    def near(self) -> int:
        """Rows that differ by over half of the tolerance."""
        return sum(_most(row) > TOLERANCE / 2 for row in self.rows)

    @property
    def fault(self) -> str | None:
        """Say why the gate is shut; none if it is open."""
        if self.broken is not None:
            return f"a row cannot be run: {self.broken}"
        if not self.finite or not math.isfinite(self.largest):
            return "it gives numbers that are not finite"
        if self.largest > TOLERANCE:
            return (
                f"a probability differs by {self.largest:.4f} from full precision on the CPU "
                f"(row “{self.worst}”, tolerance {TOLERANCE})"
            )
        if self.lossy and self.near > _MOST_NEAR * len(self.rows):
            return (
                f"{self.near} of {len(self.rows)} rows differ by over half of the tolerance "
                f"{TOLERANCE}, so that others are past it (“{self.worst}” by {self.largest:.4f})"
            )
        if self.hard_mismatches:
            return f"{self.hard_mismatches} row(s) are decided otherwise (“{self.worst}” most)"
        if not self.repeatable:
            return "the same rows get other numbers when they are asked again"
        return None

    def to_json(self) -> dict[str, Any]:
        """Give what `/health` says of it."""
        return {
            "passed": self.fault is None,
            "fault": self.fault,
            "rows": len(self.rows),
            "largest_difference": shown(self.largest),
            "row": self.worst,
            "near_tolerance": self.near,
            "hard_mismatches": self.hard_mismatches,
            "near_ties": self.near_ties,
            "finite": self.finite,
            "repeatable": self.repeatable,
            "tolerance": TOLERANCE,
            "checked_at": self.checked_at,
        }


class Reference:
    """Rows and their answers in full precision on the CPU."""

    def __init__(
        self, rows: "Sequence[tuple[str, Encoded]]", expected: Sequence[Scores], *, lossy: bool
    ) -> None:
        self._golden = rows
        self._expected = expected
        self._lossy = lossy

    @property
    def rows(self) -> "list[Encoded]":
        """The rows, tokenized."""
        return [encoded for _, encoded in self._golden]

    def of(self, takes: "Callable[[Encoded], bool]") -> "Reference":
        """Give the rows that a model takes; all, for one that takes any."""
        kept = [at for at, (_, encoded) in enumerate(self._golden) if takes(encoded)]
        rows, expected = [self._golden[at] for at in kept], [self._expected[at] for at in kept]
        return Reference(rows, expected, lossy=self._lossy)

    def compare(self, model: "Model") -> Report:
        """Run the rows through a tuned model. Raises what torch raises."""
        alone = [model.infer([encoded])[0] for encoded in self.rows]
        together, again = model.infer(self.rows), model.infer(self.rows)
        given = [
            [scores for scores in each if isinstance(scores, Scores)]
            for each in zip(alone, together, again, strict=True)
        ]
        if any(len(scores) < 3 for scores in given):
            return Report((), finite=False, repeatable=True)
        repeatable = all(_same(*scores[1:]) for scores in given)
        return self._report(model, given, repeatable=repeatable)

    def compare_in_steps(
        self, model: "Model", run: "Callable[[Sequence[Encoded]], Sequence[Scores | Exception]]"
    ) -> Generator[None, None, Report]:
        """Do so by a way that requests' rows go, no more than one row's work at each step.

        Only short rows run together then, as many as take no longer than the longest alone.
        """
        few = self._short_ones()
        passes = [*([at] for at in range(len(self._golden))), few, few]
        given: list[list[Scores]] = [[] for _ in self._golden]
        for number, those in enumerate(passes):
            found = run([self._golden[at][1] for at in those])
            for at, scores in zip(those, found, strict=True):
                if isinstance(scores, NotFinite):
                    return Report((), finite=False, repeatable=True)
                if isinstance(scores, Exception):
                    return Report((), finite=True, repeatable=True, broken=type(scores).__name__)
                given[at].append(scores)
            if number + 1 < len(passes):
                yield
        repeatable = all(_same(*given[at][1:]) for at in few)
        return self._report(model, given, repeatable=repeatable)

    def _short_ones(self) -> list[int]:
        """Give the shortest rows, as many as are no longer than the longest, padding included."""
        lengths = [encoded.tokens for encoded in self.rows]
        by_length = sorted(range(len(lengths)), key=lengths.__getitem__)
        return [at for n, at in enumerate(by_length) if (n + 1) * lengths[at] <= max(lengths)]

    def _report(
        self, model: "Model", given: Sequence[Sequence[Scores]], *, repeatable: bool
    ) -> Report:
        """Judge the scores that each row got: alone first, then in company."""
        results = [
            _compare(model, name, encoded, expected, scores)
            for (name, encoded), expected, scores in zip(
                self._golden, self._expected, given, strict=True
            )
        ]
        return Report(tuple(results), finite=True, repeatable=repeatable, lossy=self._lossy)


def take_reference(
    model: "Model", known: "KnownAnswers | None" = None, weights: str = FP32
) -> tuple[Reference, bool]:
    """Take the answers of a model that is on the CPU, untuned; and say whether they were known.

    The rows are those for a precision. Raises what torch raises.
    """
    begun = time.monotonic()
    rows = [(name, model.encode(state, asked)) for name, state, asked in golden.rows_for(weights)]
    remembered = known.read(rows) if known is not None else None
    expected = remembered if remembered is not None else _answers(model, rows)
    if known is not None and remembered is None:
        known.write(rows, expected)
    how = "answered" if remembered is None else "read the known answers to"
    ms = round(1000 * (time.monotonic() - begun))
    log.info(f"{how} the parity rows in full precision on the CPU", phase="parity", ms=ms)
    lossy = weights in golden.LOSSY
    return Reference(rows, expected, lossy=lossy), remembered is not None


def _answers(model: "Model", rows: "Sequence[tuple[str, Encoded]]") -> list[Scores]:
    """Run each row by itself, and tell now and then how far that has got."""
    expected: list[Scores] = []
    told_at = time.monotonic()
    for _, encoded in rows:
        scores = model.infer([encoded])[0]
        if isinstance(scores, NotFinite):
            raise scores
        expected.append(scores)
        if time.monotonic() - told_at > _TELL_SECONDS:
            # A supervisor ends a start that has not got on for long.
            told_at = time.monotonic()
            done = f"{len(expected)} of {len(rows)} parity rows"
            log.info(f"answered {done} in full precision on the CPU", phase="parity")
    return expected


def _compare(
    model: "Model", name: str, encoded: "Encoded", expected: Scores, given: Sequence[Any]
) -> RowResult:
    wanted = model.probabilities(encoded, expected)
    found = [model.probabilities(encoded, scores) for scores in given]
    differences = [_apart(wanted, each) for each in found]
    otherwise = any(
        int(one.argmax()) != int(other.argmax())
        for each in found
        for one, other in zip(wanted, each, strict=True)
    )
    sure = min(_margin(each) for each in wanted) >= 2 * TOLERANCE
    return RowResult(
        name=name,
        tokens=encoded.tokens,
        options=len(wanted[0]),
        alone=differences[0],
        together=float(np.max(differences[1:], initial=0.0)),
        act=float(np.max([np.abs(expected.act - scores.act).max() for scores in given])),
        hard_mismatch=otherwise and sure,
        near_tie=otherwise and not sure,
    )


def _most(row: RowResult) -> float:
    # Nothing is larger than NaN, which `max` may give or leave out.
    differences = (row.alone, row.together, row.act)
    return max(differences) if all(map(math.isfinite, differences)) else math.inf


def _apart(one: Sequence[NDArray[Any]], other: Sequence[NDArray[Any]]) -> float:
    return float(np.max([np.abs(a - b).max() for a, b in zip(one, other, strict=True)]))


def _margin(probabilities: NDArray[Any]) -> float:
    best = np.sort(probabilities)[::-1]
    return float(best[0] - best[1]) if len(best) > 1 else 1.0


def _same(one: Any, other: Any) -> bool:
    return bool(np.array_equal(one.logits, other.logits) and np.array_equal(one.act, other.act))

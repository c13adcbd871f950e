"""Whether rows may run unpadded on a CPU: only where that gives laya's own answers.

The trial's requests are those of the warm-up. Laya's answers to them are taken first, each request
by itself, since together all would be padded to the longest; then the unpadded pass warms up on
the same requests, and what it gives is held against them.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from omni_jev_worker import log
from omni_jev_worker.known_answers import KnownAnswers
from omni_jev_worker.scores import NotFinite, Scores, differ

if TYPE_CHECKING:
    # For the types alone: this module is imported before torch may be.
    from omni_jev_worker.model import Encoded, Model

# Of a probability; rounding alone makes some 1e-6.
_MOST_DIFFERENCE: Final = 1e-4

# Answers that take less are computed at every start, and leave no file.
_WORTH_KEEPING_SECONDS: Final = 1.0

Row = tuple[str, "Encoded"]


@dataclass(frozen=True, slots=True)
class Trial:
    """Requests, and laya's own answers to them."""

    requests: Sequence[Row]
    expected: Sequence[Scores | NotFinite]

    def fault(self, given: Sequence[Scores | NotFinite]) -> str | None:
        """Say what speaks against a pass that gave these scores; none if nothing does."""
        for (name, encoded), wanted, found in zip(self.requests, self.expected, given, strict=True):
            difference = _difference(encoded, wanted, found)
            if difference > _MOST_DIFFERENCE:
                return f"its answers differ by {difference:.1e} from laya's own pass ({name})"
        return None


def prepare(model: "Model", requests: Sequence[Row], known: KnownAnswers | None = None) -> Trial:
    """Take laya's own answers from a model on the CPU that runs as laya does.

    They are read instead where they are known from an earlier start. Raises what torch raises.
    """
    begun = time.monotonic()
    remembered = known.read(requests) if known is not None else None
    if remembered is not None:
        _tell("read laya's own answers to the requests of the warm-up", begun)
        return Trial(requests, remembered)
    expected = [model.infer([encoded])[0] for _, encoded in requests]
    _tell("answered the requests of the warm-up as laya does", begun)
    finite = [scores for scores in expected if isinstance(scores, Scores)]
    slow = time.monotonic() - begun > _WORTH_KEEPING_SECONDS
    if known is not None and slow and len(finite) == len(expected):
        known.write(requests, finite)
    return Trial(requests, expected)


def _tell(what: str, begun: float) -> None:
    log.info(what, phase="parity", ms=round(1000 * (time.monotonic() - begun)))


def _difference(encoded: "Encoded", wanted: Scores | NotFinite, found: Scores | NotFinite) -> float:
    if isinstance(wanted, NotFinite) or isinstance(found, NotFinite):
        return float(isinstance(wanted, NotFinite) != isinstance(found, NotFinite))
    options = [len(item["markers"]) for item in encoded.items]
    return max(differ(wanted, found, options), float(abs(wanted.act - found.act).max()))

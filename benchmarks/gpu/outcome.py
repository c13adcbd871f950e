"""What a load got: times, errors, and what the generator itself cost."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.gpu.connection import Reply
from benchmarks.gpu.table import UNDER_LOAD
from benchmarks.gpu.workload import Item
from benchmarks.percentiles import percentile

_TOKENS = re.compile(rb'"input_tokens": *(\d+)')


def fault(item: Item, reply: Reply) -> str | None:
    """Say what is wrong with an answer, if it is not a whole one to this very request."""
    if reply.status != 200:
        return f"status {reply.status}"
    if reply.body.count(item.mark) < item.questions:
        return "an answer to other questions"
    if not item.tokens:
        return None
    tokens = _TOKENS.search(reply.body)
    if tokens is None or int(tokens[1]) != item.tokens:
        return f"{tokens[1].decode() if tokens else 'no'} tokens, not {item.tokens}"
    return None


@dataclass
class Outcome:
    """Of one load, or of one process's part of it. Times are in seconds."""

    times: list[float] = field(default_factory=list)
    """Of each right answer: from its sending, or from the moment it was due."""
    errors: Counter[str] = field(default_factory=Counter)
    unfinished: int = 0
    """Requests that were not answered in time."""
    rate: float = 0.0
    """Right answers a second within the load's time."""
    late: list[float] = field(default_factory=list)
    """How long after it was due each request was sent."""
    generator: list[float] = field(default_factory=list)
    """The share of a core that each generating process used."""

    def problem(self) -> str | None:
        """Say why its figures cannot stand, if they cannot."""
        failed = sum(self.errors.values())
        if not failed and not self.unfinished and self.times:
            return None
        kinds = ", ".join(f"{kind}: {count}" for kind, count in self.errors.most_common(3))
        parts = [f"{failed} errors ({kinds})"] if failed else []
        parts += [f"{self.unfinished} not finished"] if self.unfinished else []
        return f"{UNDER_LOAD}: {', '.join(parts) or 'no answer'} of {self.asked}"

    @property
    def asked(self) -> int:
        """All requests."""
        return len(self.times) + sum(self.errors.values()) + self.unfinished

    def milliseconds(self, share: float) -> float:
        """A percentile of the times, in milliseconds."""
        return percentile(self.times, share) * 1000

    def record(self) -> dict[str, Any]:
        """Give all of it for the file of raw results, times in milliseconds."""
        return {
            "milliseconds": [round(each * 1000, 4) for each in self.times],
            "errors": dict(self.errors),
            "unfinished": self.unfinished,
            "answers_per_second": self.rate,
            "late_milliseconds": [round(each * 1000, 3) for each in self.late],
            "generator_cores": self.generator,
        }


def merged(parts: Sequence[Outcome]) -> Outcome:
    """Put the parts of several processes together."""
    whole = Outcome()
    for part in parts:
        whole.times += part.times
        whole.errors += part.errors
        whole.unfinished += part.unfinished
        whole.rate += part.rate
        whole.late += part.late
        whole.generator += part.generator
    return whole

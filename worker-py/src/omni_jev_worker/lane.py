"""What this worker takes as one of several: the rest is another's, and gets a 421 at once.

What is past a limit (413) no worker answers; this is for a frontend that has another to ask.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from omni_jev_worker.protocol.problems import misdirected


@dataclass(frozen=True, slots=True)
class Lane:
    """The most of each that is taken; none takes what the limits let through."""

    tokens: int | None = None
    """Of a row."""
    questions: int | None = None
    """Of a request."""
    options: int | None = None
    """Of a row."""

    def check_questions(self, count: int) -> None:
        """Refuse a request of too many questions. Raises the 421."""
        if self.questions is not None and count > self.questions:
            raise misdirected(f"this worker takes {self.questions} questions, not {count}")

    def check_rows(self, lengths: Sequence[int], options: Sequence[int]) -> None:
        """Refuse rows that are too long or have too many options. Raises the 421."""
        if self.tokens is not None and (longest := max(lengths)) > self.tokens:
            raise misdirected(f"this worker takes {self.tokens} tokens, not {longest}")
        if self.options is not None and (most := max(options)) > self.options:
            raise misdirected(f"this worker takes {self.options} options in a row, not {most}")

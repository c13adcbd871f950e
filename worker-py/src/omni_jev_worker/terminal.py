"""What a person at a terminal reads, beside the log."""

import sys
from collections.abc import Sequence


def tell(lines: Sequence[str]) -> None:
    """Print lines. Not `print`: whatever libraries print is a line of the log."""
    if sys.__stdout__ is not None:
        sys.__stdout__.write("".join(f"{line}\n" for line in lines))
        sys.__stdout__.flush()

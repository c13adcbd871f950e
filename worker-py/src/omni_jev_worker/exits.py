"""How this process ends, and the one exception that ends it on purpose."""

from typing import Final

STOPPED: Final = 0
"""Asked to stop, and stopped."""

FAILED: Final = 1
"""Broke in a way that another start may cure."""

BAD_FLAGS: Final = 64
"""A flag is wrong or two contradict each other (``EX_USAGE``). Another start cannot help."""

BAD_CONFIGURATION: Final = 78
"""What was asked for cannot work on this machine (``EX_CONFIG``). Another start cannot help."""


UNREACHABLE: Final = "unreachable"
"""The kind of a refusal because the hub has, or gives, no such checkpoint."""

WRONG_DEVICE: Final = "wrong_device"
"""The kind of a refusal because the model would be on another device than the required one."""


class Refusal(Exception):
    """The worker will not start. Its text is the one line that the user reads.

    ``code`` is the exit code: `BAD_FLAGS` or `BAD_CONFIGURATION`; ``kind`` tells a worker that
    started this one for another checkpoint what to answer.
    """

    def __init__(self, code: int, message: str, kind: str | None = None) -> None:
        super().__init__(" ".join(message.split()))
        self.code = code
        self.kind = kind


def bad_flags(message: str) -> Refusal:
    """Make the refusal of a wrong or contradictory flag."""
    return Refusal(BAD_FLAGS, message)


def bad_configuration(message: str) -> Refusal:
    """Make the refusal of a configuration that cannot work here."""
    return Refusal(BAD_CONFIGURATION, message)

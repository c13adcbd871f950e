"""The values of flags, from the words of a command line.

Argparse puts the text of these errors after the name of the flag.
"""

import argparse
import re
from typing import Final

from omni_jev_worker.buckets import AUTO, OFF

MOST_LIMIT: Final = 16 * 1024 * 1024
"""The most that a limit's flag takes: what is read of a body at all."""


def text(value: str) -> str:
    """Take a text that is not empty."""
    if not value or "\0" in value:
        raise argparse.ArgumentTypeError("must not be empty")
    return value


def host(value: str) -> str:
    """Take a host's name or address."""
    text(value)
    try:
        # What the system's look-up does first, and fails on: an empty or overlong label.
        value.encode("idna")
    except UnicodeError:
        raise argparse.ArgumentTypeError("must be a host's name or address") from None
    return value


def port(value: str) -> int:
    """Take a port."""
    if not value.isascii() or not value.isdigit() or int(value) > 65535:
        raise argparse.ArgumentTypeError("must be a port: 0 to 65535")
    return int(value)


def count(value: str) -> int:
    """Take a whole number of things."""
    if not value.isascii() or not value.isdigit() or not 1 <= int(value) <= 1_000_000:
        raise argparse.ArgumentTypeError("must be a whole number from 1 to 1000000")
    return int(value)


def limit(value: str) -> int:
    """Take a limit, up to `MOST_LIMIT`."""
    if not value.isascii() or not value.isdigit() or not 1 <= int(value) <= MOST_LIMIT:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 to {MOST_LIMIT}")
    return int(value)


def seconds(value: str) -> float:
    """Take seconds, up to an hour."""
    try:
        seconds = float(value)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 3600:
        raise argparse.ArgumentTypeError("must be a number of seconds from 0 to 3600")
    return seconds


def some_seconds(value: str) -> float:
    """Take seconds, a tenth at least."""
    given = seconds(value)
    if given < 0.1:
        raise argparse.ArgumentTypeError("must be a number of seconds from 0.1 to 3600")
    return given


def byte_count(value: str) -> int:
    """Take bytes, or KiB, MiB or GiB of them."""
    found = re.fullmatch("([0-9]{1,18})(|KiB|MiB|GiB)", value)
    if found is None:
        raise argparse.ArgumentTypeError("must be whole bytes, or whole KiB, MiB or GiB: 5GiB")
    return int(found[1]) * {"": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}[found[2]]


def lengths(value: str) -> str | tuple[int, ...]:
    """Take `auto`, `off`, or rising lengths in tokens."""
    if value in (AUTO, OFF):
        return value
    if not re.fullmatch("[0-9]{1,5}(,[0-9]{1,5}){0,63}", value):
        raise argparse.ArgumentTypeError("must be auto, off, or lengths in tokens: 64,128,256")
    lengths = tuple(int(each) for each in value.split(","))
    if list(lengths) != sorted(set(lengths)) or lengths[0] < 1:
        raise argparse.ArgumentTypeError("must be auto, off, or rising lengths in tokens")
    return lengths

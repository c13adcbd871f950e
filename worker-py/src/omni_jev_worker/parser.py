"""Command lines whose faults are told in one line, without what was typed."""

import argparse
import re
from typing import NoReturn

from omni_jev_worker.exits import bad_flags


class Parser(argparse.ArgumentParser):
    """An argument parser that raises our refusal instead of printing usage and exiting 2."""

    def error(self, message: str) -> NoReturn:
        """Raise the refusal of a wrong flag."""
        raise bad_flags(f"{_without_values(message)} (see --help)")


def _without_values(message: str) -> str:
    """Take out what was typed: argparse repeats it, and it may be a secret in the wrong place."""
    found = re.fullmatch("unrecognized arguments: (.*)", message, re.DOTALL)
    if found:
        names = re.findall(r"(?:^|\s)(--?[a-z][a-z-]{0,39})(?=[\s=]|$)", found[1])
        return f"there is no flag {', '.join(names)}" if names else "a word that no flag takes"
    message = re.sub(
        r"invalid choice: .*\(choose from (.*)\)$", r"must be one of \1", message, flags=re.DOTALL
    )
    return re.sub("ignored explicit argument .*", "takes no value", message, flags=re.DOTALL)

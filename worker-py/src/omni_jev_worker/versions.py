"""Compares the installed packages with the set that this worker was tested with."""

from collections.abc import Callable, Mapping
from typing import Final

from omni_jev_worker import log
from omni_jev_worker.exits import bad_configuration

TESTED: Final[Mapping[str, str]] = {
    "laya": "0.3.20",
    "torch": "2.14.0",
    "transformers": "5.24.0",
    "tokenizers": "0.23.3",
    "safetensors": "0.8.0",
    "numpy": "2.4.6",
}


def check(installed: Callable[[str], str] | None = None) -> dict[str, str]:
    """Give the installed versions, and warn in one line of those that are others than tested.

    Another transformers has silently changed the position encoding of this model family before, so
    a difference must be seen; it is no reason not to start. Raises `Refusal` for a missing package.
    """
    # A fifth of what `--help` and a wrong flag would otherwise import.
    from importlib import metadata

    installed = installed or metadata.version
    found = {}
    for name in TESTED:
        try:
            found[name] = installed(name)
        except metadata.PackageNotFoundError:
            raise bad_configuration(
                f"the Python package {name} is not installed: install requirements.lock"
            ) from None
    others = [
        f"{name} {found[name]} (tested: {wanted})"
        for name, wanted in TESTED.items()
        if found[name].split("+")[0] != wanted
    ]
    if others:
        log.warning(f"untested package versions: {', '.join(others)}", phase="import")
    return found

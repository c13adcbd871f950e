"""The packages that an engine needs, which are no part of a plain installation."""

from collections.abc import Mapping

from omni_jev_worker.engines.forward import Unavailable


def versions_of(*names: str, extra: str) -> Mapping[str, str]:
    """Give the installed versions. Raises `Unavailable` that names what is missing.

    ``extra`` is that of the package which brings them.
    """
    from importlib import metadata

    found = {}
    for name in names:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            raise Unavailable(
                f"the Python package {name} is not installed (pip install 'worker-py/[{extra}]')"
            ) from None
    return found

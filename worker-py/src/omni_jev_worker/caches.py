"""Where things are kept from one start to the next."""

import os
from collections.abc import Mapping
from pathlib import Path


def compile_folder(environment: Mapping[str, str], platform: str) -> str:
    """Give the folder for what the compiler makes."""
    return str(_folder(environment, platform) / "compile")


def artifacts_folder(environment: Mapping[str, str], platform: str) -> str:
    """Give the folder for what engines other than torch need of a checkpoint."""
    return str(_folder(environment, platform) / "artifacts")


def _folder(environment: Mapping[str, str], platform: str) -> Path:
    """Give ours in the user's cache folder of the system.

    Linux: the XDG base directory specification, ``XDG_CACHE_HOME``; macOS: ``~/Library/Caches``.
    """
    home = Path(environment.get("HOME") or os.path.expanduser("~"))
    if platform == "darwin":
        base = home / "Library" / "Caches"
    else:
        given = environment.get("XDG_CACHE_HOME", "")
        # The specification: a relative path is to be ignored.
        base = Path(given) if os.path.isabs(given) else home / ".cache"
    return base / "omni-jev"


def use_for_compiler(folder: str) -> None:
    """Have torch's compiler keep what it makes in a folder; before torch is imported."""
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(Path(folder) / "inductor")
    os.environ["TRITON_CACHE_DIR"] = str(Path(folder) / "triton")
    os.environ.setdefault("TORCHINDUCTOR_FX_GRAPH_CACHE", "1")
    os.environ.setdefault("TORCHINDUCTOR_AUTOGRAD_CACHE", "1")

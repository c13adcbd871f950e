"""The machine that an artifact was made on, or proved on: what its numbers may depend on."""

import hashlib
import platform
import sys
from functools import cache
from pathlib import Path
from typing import Final

_FIELDS: Final = ("model name", "flags", "Features", "CPU implementer", "CPU part")


@cache
def here() -> dict[str, str]:
    """Describe this machine: its system, its processor, and a hash of what that can do."""
    processor, abilities = _processor()
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "processor": processor,
        "abilities": hashlib.sha256(abilities.encode()).hexdigest()[:16],
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
    }


def _processor() -> tuple[str, str]:
    """Give the processor's name and what tells its instructions."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        name = platform.processor() or "unknown"
        return name, f"{name} {platform.release()}"
    found: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip() in _FIELDS:
            found.setdefault(name.strip(), value.strip())
    flags = " ".join(sorted(found.pop("flags", found.pop("Features", "")).split()))
    name = found.get("model name") or " ".join(found.values()) or "unknown"
    return name, f"{name} {flags}"

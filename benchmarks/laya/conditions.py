"""Whether this machine is fit to be measured now: on mains power, and with little else to do."""

from __future__ import annotations

import contextlib
import os
import platform
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.laya.figures import decimal

FEASIBILITY: Final = "feasibility"
"""The label of a run that shows that all works, on any machine; its numbers mean nothing."""

MOST_LOAD: Final = 2.0
_SUPPLIES: Final = Path("/sys/class/power_supply")
_MAINS: Final = ("Mains", "USB", "USB_C", "USB_PD", "Wireless")


@dataclass(frozen=True)
class Conditions:
    """What the machine is like at a moment."""

    power: str
    """`mains`, `battery`, or `unknown` where the system does not tell (most servers)."""
    load: float
    """The mean number of processes that wanted a core in the last minute."""
    gpu_watts: tuple[float, ...] = ()
    """What each NVIDIA GPU draws, where `nvidia-smi` tells it: one that is cold draws little."""

    def refusal(self, run: str, most_load: float) -> str | None:
        """Say why a run of this label must not be measured now, if it must not."""
        if run == FEASIBILITY:
            return None
        if self.power == "battery":
            return f"on battery power: plug it in, or label the run {FEASIBILITY}"
        if self.load > most_load:
            return (
                f"the one-minute load is {self.load:.2f}, over {most_load:g}: end what else runs, "
                f"or label the run {FEASIBILITY}"
            )
        return None

    def record(self) -> dict[str, Any]:
        """Give it for the results."""
        found: dict[str, Any] = {"power": self.power, "load": round(self.load, 2)}
        return found | ({"gpu_watts": self.gpu_watts} if self.gpu_watts else {})


def now() -> Conditions:
    """Look at this machine. The load comes from the C library as a number, in every locale."""
    if platform.system() == "Darwin":
        return Conditions(power_of_macos(_told(["pmset", "-g", "batt"])), os.getloadavg()[0])
    asked = ["nvidia-smi", "--query-gpu=power.draw", "--format=csv,noheader,nounits"]
    return Conditions(power_of_linux(_SUPPLIES), os.getloadavg()[0], watts(_told(asked)))


def watts(told: str) -> tuple[float, ...]:
    """Read what `nvidia-smi` says that each GPU draws; one that does not say is left out."""
    found = []
    for line in told.splitlines():
        with contextlib.suppress(ValueError):
            found.append(decimal(line))
    return tuple(found)


def power_of_macos(told: str) -> str:
    """Read what `pmset -g batt` says: `Now drawing from 'AC Power'` is its first line."""
    source = told.partition("'")[2].partition("'")[0]
    return {"AC Power": "mains", "Battery Power": "battery", "UPS Power": "battery"}.get(
        source, "unknown"
    )


def power_of_linux(folder: Path) -> str:
    """Read the kernel's power supplies: one folder each, with `type`, `online` and `status`.

    The batteries of devices (`scope` is `Device`: a mouse, a headset) do not count.
    """
    supplies = [_supply(each) for each in sorted(folder.glob("*"))]
    counted = [each for each in supplies if each.get("scope") != "Device"]
    mains = [each for each in counted if each.get("type") in _MAINS and "online" in each]
    if any(each["online"] == "1" for each in mains):
        return "mains"
    states = [each.get("status") for each in counted if each.get("type") == "Battery"]
    if "Discharging" in states:
        return "battery"
    if any(state in ("Charging", "Full", "Not charging") for state in states):
        return "mains"
    return "battery" if mains and states else "unknown"


def _supply(folder: Path) -> dict[str, str]:
    found = {}
    for name in ("type", "online", "status", "scope"):
        try:
            found[name] = (folder / name).read_text(encoding="utf-8").strip()
        except OSError:
            continue
    return found


def _told(command: list[str]) -> str:
    """Give what a program says, in the plain locale; nothing where it is not there."""
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
            env={**os.environ, "LC_ALL": "C"},
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""

"""Which processes of a test are alive, found by a mark that they inherit or carry.

The mark is the path of the test's scratch folder: it is in the environment of all that the binary
starts (from the fork on) and in the worker's `--uds` flag.
"""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Process:
    pid: int
    parent: int
    command: str


def processes_marked(mark: str) -> list[Process]:
    """List the living processes with the mark; zombies are dead."""
    found = _marked_in_proc(mark) if sys.platform == "linux" else _marked_by_ps(mark)
    return [process for process in found if process.pid != os.getpid()]


def _marked_in_proc(mark: str) -> list[Process]:
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            command = (folder / "cmdline").read_bytes()
            # Both are empty for a zombie.
            if mark.encode() not in command + (folder / "environ").read_bytes():
                continue
            # The name in parentheses may hold anything, so the fields are counted from its end.
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, PermissionError, ProcessLookupError):
            continue
        text = command.rstrip(b"\0").replace(b"\0", b" ").decode(errors="replace")
        found.append(Process(int(folder.name), parent, text))
    return found


def _marked_by_ps(mark: str) -> list[Process]:
    listing = subprocess.run(
        ["ps", "-axww", "-o", "pid=,ppid=,command="], capture_output=True, text=True, check=True
    )
    found = []
    for line in listing.stdout.splitlines():
        pid, parent, command = line.split(None, 2)
        if mark in command:
            found.append(Process(int(pid), int(parent), command))
    return found

"""The processes that torch's compiler has started from this one."""

import os
from pathlib import Path

import pytest


def compiler_processes() -> list[bytes]:
    """Give their command lines; skips the test where processes cannot be read."""
    if not Path("/proc/self/stat").exists():
        pytest.skip("processes are read from /proc here")
    mine = f"PPid:\t{os.getpid()}\n"
    children = [
        (folder / "cmdline").read_bytes()
        for folder in Path("/proc").iterdir()
        if folder.name.isdigit() and mine in (folder / "status").read_text()
    ]
    return [each for each in children if b"compile_worker" in each]

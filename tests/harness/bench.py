"""The programs of `benchmarks/laya`, run as a person runs them."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.harness.omni_jev import ROOT

_SECONDS = 300


def program(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program from another folder than the repository's, in a locale with comma decimals."""
    return subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "laya" / f"{name}.py"), *arguments],
        cwd="/tmp",
        env={**os.environ, "LC_ALL": "de_DE.UTF-8"},
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )


def lines(folder: Path, name: str) -> list[dict[str, Any]]:
    """Read the one file of results whose name begins so."""
    (file,) = folder.glob(f"{name}*.jsonl")
    return [json.loads(line) for line in file.read_text().splitlines()]

"""The raw results of these programs: one JSON object a line, of which `--raw FILE` asks for a file.

The first line of a run has the machine, versions, commit and command. `tests/test_claims.py` draws
the tables of published files anew, by the function of the program that wrote them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

DEMO = Path(__file__).resolve().parents[2] / "recipe" / "demo" / "checkpoint"

Line = dict[str, Any]


class Raw:
    """Collects a run's lines, and appends each to a file where one is asked for."""

    def __init__(self, path: Path | None, program: str, folder: Path = DEMO) -> None:
        """Begin a run of a program with the checkpoint in a folder."""
        self._path = path
        self._program = program
        self.lines: list[Line] = []
        if path is not None:
            # Here: it imports programs of this folder itself.
            from benchmarks.gpu import machine

            self.record("meta", **machine.describe("cpu", None, folder))

    def record(self, kind: str, **what: Any) -> None:
        """Keep a line."""
        line = {"program": self._program, "kind": kind, **what}
        self.lines.append(line)
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line, default=str) + "\n")


def of(lines: Sequence[Line], kind: str) -> list[Line]:
    """Give the lines of a kind."""
    return [line for line in lines if line["kind"] == kind]

"""The files of raw results: one JSON object a line, each with the run that it belongs to.

Every line has `program`, `config`, `run` (the label), `id` (of this one run) and `kind`. The first
of a run is of the kind `meta`, the last of the kind `end`; one without its end was broken off.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.gpu.servers import ROOT

RESULTS = ROOT / "benchmarks" / "laya" / "results"

Line = Mapping[str, Any]


class Results:
    """Appends the lines of one run to its file."""

    def __init__(self, folder: Path, program: str, config: str, run: str) -> None:
        name = f"{program}_{config}_{run}" if config else f"{program}_{run}"
        self.path = folder / f"{name}.jsonl"
        folder.mkdir(parents=True, exist_ok=True)
        moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        self._whose = {
            "program": program,
            "config": config,
            "run": run,
            "id": f"{moment}-{secrets.token_hex(2)}",
        }

    def record(self, kind: str, **what: Any) -> None:
        """Append a line; with the file closed after it, so that what was measured stays."""
        line = {**self._whose, "kind": kind, **what}
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, default=str, ensure_ascii=False) + "\n")


@dataclass
class Run:
    """One run's lines, as read."""

    program: str
    config: str
    label: str
    id: str
    lines: list[Line] = field(default_factory=list)

    def of(self, kind: str) -> list[Line]:
        """Give its lines of a kind."""
        return [line for line in self.lines if line["kind"] == kind]

    def one(self, kind: str) -> Line:
        """Give the last line of a kind; an empty one where there is none."""
        return self.of(kind)[-1] if self.of(kind) else {}

    @property
    def ended(self) -> bool:
        """Whether it came to its end."""
        return bool(self.of("end"))


def read(paths: Iterable[Path]) -> list[Run]:
    """Read files of results; the runs, in the order of their beginnings. Raises `ValueError`."""
    runs: dict[str, Run] = {}
    for path in paths:
        for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            try:
                line = json.loads(text)
                names = (line["program"], line["config"], line["run"], line["id"])
                runs.setdefault(line["id"], Run(*names)).lines.append(line)
            except (ValueError, KeyError, TypeError):
                raise ValueError(f"{path}, line {number}: no result") from None
    return sorted(runs.values(), key=lambda run: run.id)


def table(head: Sequence[str], rows: Iterable[Sequence[str]], texts: int = 1) -> str:
    """Draw a table in Markdown; its first columns hold `texts`, the others numbers."""
    lines = [head, ["---"] * texts + ["---:"] * (len(head) - texts), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)

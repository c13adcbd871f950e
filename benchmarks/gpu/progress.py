"""What is told while it runs, and the file of raw results."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any


class Progress:
    """Lines with the seconds since the start, and one JSON object a line in a file."""

    def __init__(self, results: Path, limit: float) -> None:
        """Begin now; after `limit` seconds no more stages are begun."""
        self._results = results
        self._begun = time.monotonic()
        self._limit = limit
        results.parent.mkdir(parents=True, exist_ok=True)

    @property
    def left(self) -> float:
        """Seconds until the limit."""
        return self._begun + self._limit - time.monotonic()

    @property
    def over(self) -> bool:
        """Whether the limit has passed."""
        return self.left <= 0

    def say(self, text: str) -> None:
        """Tell what happened."""
        print(f"[{time.monotonic() - self._begun:6.1f} s] {text}", flush=True)

    def record(self, side: str, stage: str, **what: Any) -> None:
        """Append a raw result."""
        line = {"side": side, "stage": stage, "at_s": time.monotonic() - self._begun, **what}
        with self._results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, default=str) + "\n")

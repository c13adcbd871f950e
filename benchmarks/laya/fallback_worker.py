"""The worker on a CPU with an end of memory that is made up, for `fallback.py --simulate`.

    python fallback_worker.py FLAG_FILE MOST_ROWS FLAG...

While the file is there, a pass of more rows than that raises what a device without memory raises.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

# Takes this folder from the path: torch needs the standard library's `profile`.
import benchmarks.laya  # noqa: F401


def run_short(flag: Path, most: int) -> None:
    """Let passes of too many rows fail while the file is there."""
    from omni_jev_worker.memory import OutOfMemory
    from omni_jev_worker.model import Model

    infer = Model.infer

    def short(model: Any, batch: Any, *rest: Any, **named: Any) -> Any:
        rows = sum(len(encoded.items) for encoded in batch)
        if rows > most and flag.exists():
            raise OutOfMemory(f"simulated: no memory for {rows} rows")
        return infer(model, batch, *rest, **named)

    Model.infer = short  # type: ignore[assignment,method-assign]


def main() -> int:
    """Serve; the worker's exit code."""
    file, most, *flags = sys.argv[1:]
    run_short(Path(file), int(most))
    from omni_jev_worker import cli

    return cli.main(flags)


if __name__ == "__main__":
    sys.exit(main())

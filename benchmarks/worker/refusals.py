"""How long the worker takes to answer what needs no torch: help, a bad flag, no checkpoint.

    .venv/bin/python benchmarks/worker/refusals.py [--times 20] [--raw FILE]

Prints the median and the longest time from the process's start to its end, and the processor time,
which a busy machine changes less.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.worker.raw import Line, Raw, of

SOURCE = Path(__file__).resolve().parents[2] / "worker-py/src"
ASKED = {
    "`--help`": (["--help"], 0),
    "a bad flag": (["--no-such-flag"], 64),
    "a folder that is not there": (["--model", "/no/such/folder"], 78),
    "a hub checkpoint that is not in the cache, offline": (["--model", "english"], 78),
}


def processor_seconds() -> float:
    """What all ended children took so far."""
    times = os.times()
    return times.children_user + times.children_system


def measure(flags: list[str], code: int, folder: str) -> tuple[float, float]:
    """Run a worker once: milliseconds by the clock, and of a processor."""
    used, begun = processor_seconds(), time.perf_counter()
    environment = {
        **os.environ,
        "PYTHONPATH": str(SOURCE),
        "HF_HOME": folder,
        "HF_HUB_OFFLINE": "1",
    }
    ended = subprocess.run(
        [sys.executable, "-m", "omni_jev_worker", *flags],
        env=environment,
        capture_output=True,
        check=False,
    )
    taken = time.perf_counter() - begun
    if ended.returncode != code:
        raise SystemExit(f"{flags}: exit code {ended.returncode}: {ended.stderr.decode()}")
    return 1000 * taken, 1000 * (processor_seconds() - used)


def main() -> None:
    """Measure each in turn and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--raw", type=Path, help="append each run's times to this file")
    options = parser.parse_args()
    raw = Raw(options.raw, "refusals")
    with tempfile.TemporaryDirectory() as folder:
        for name, (flags, code) in ASKED.items():
            for _ in range(options.times):
                wall, processor = measure(flags, code, folder)
                raw.record("run", asked=name, ms=wall, processor_ms=processor)
    print(summary(raw.lines))


def summary(lines: Sequence[Line]) -> str:
    """Draw the table."""
    rows = ["| asked for | median ms | longest ms | processor ms |", "| --- | ---: | ---: | ---: |"]
    for name in dict.fromkeys(line["asked"] for line in of(lines, "run")):
        runs = [line for line in of(lines, "run") if line["asked"] == name]
        wall, processor = ([run[key] for run in runs] for key in ("ms", "processor_ms"))
        middle = f"{statistics.median(wall):.0f} | {max(wall):.0f}"
        rows.append(f"| {name} | {middle} | {statistics.median(processor):.0f} |")
    return "\n".join(rows)


if __name__ == "__main__":
    main()

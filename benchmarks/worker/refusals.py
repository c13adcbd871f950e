"""How long the worker takes to answer what needs no torch: help, a bad flag, no checkpoint.

    .venv/bin/python benchmarks/worker/refusals.py [--times 20]

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
from pathlib import Path

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
    options = parser.parse_args()
    print("| asked for | median ms | longest ms | processor ms |\n| --- | ---: | ---: | ---: |")
    with tempfile.TemporaryDirectory() as folder:
        for name, (flags, code) in ASKED.items():
            runs = [measure(flags, code, folder) for _ in range(options.times)]
            wall, processor = zip(*runs, strict=True)
            print(
                f"| {name} | {statistics.median(wall):.0f} | {max(wall):.0f} "
                f"| {statistics.median(processor):.0f} |"
            )


if __name__ == "__main__":
    main()

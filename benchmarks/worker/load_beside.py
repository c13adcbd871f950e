"""What requests wait while another checkpoint loads: in another thread, or in another process.

    python benchmarks/worker/load_beside.py FOLDER

FOLDER is the other checkpoint (`random_checkpoint.py` makes one of a published shape). Requests to
the demo checkpoint run one after the other on one thread, alone, then while the other is loaded
each way. Prints a table of what they took.
"""

from __future__ import annotations

import os

# One thread each: two on a machine with two cores measure the machine.
os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

DEMO = Path(__file__).resolve().parents[2] / "recipe" / "demo" / "checkpoint"
QUESTION = {"q": {"type": "noul", "instructions": "Does the customer ask for a refund?"}}
STATE = "Please refund the duplicate charge."
LOAD = "from laya import Agent; Agent(%r, device='cpu')"


def main() -> None:
    """Measure the three."""
    parser = argparse.ArgumentParser(description="Measure what requests wait beside a load.")
    parser.add_argument("folder", type=Path)
    folder = str(parser.parse_args().folder.resolve())
    import torch
    from laya import Agent

    torch.set_num_threads(1)
    agent = Agent(str(DEMO), device="cpu")

    def ask() -> None:
        agent.system_one(STATE, QUESTION)

    def pause() -> None:
        time.sleep(10)

    def in_a_thread() -> None:
        Agent(folder, device="cpu")

    def in_a_process() -> None:
        subprocess.run([sys.executable, "-c", LOAD % folder], check=True)

    for _ in range(20):
        ask()
    print("| the other loads | s | requests | p50 ms | p99 ms | longest ms |")
    print("| --- | --- | --- | --- | --- | --- |")
    ways: dict[str, Callable[[], None]] = {
        "not at all": pause,
        "in another thread": in_a_thread,
        "in another process": in_a_process,
    }
    for name, way in ways.items():
        report(name, way, ask)


def report(name: str, way: Callable[[], None], ask: Callable[[], None]) -> None:
    """Ask for as long as the other thread is at it."""
    other = threading.Thread(target=way)
    began = time.perf_counter()
    other.start()
    times = []
    while other.is_alive():
        start = time.perf_counter()
        ask()
        times.append((time.perf_counter() - start) * 1000)
    seconds = time.perf_counter() - began
    times.sort()
    p99 = times[int(0.99 * len(times))]
    figures = f"{statistics.median(times):.1f} | {p99:.1f} | {times[-1]:.1f}"
    print(f"| {name} | {seconds:.1f} | {len(times)} | {figures} |")


if __name__ == "__main__":
    main()

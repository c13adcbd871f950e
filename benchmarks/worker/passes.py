"""What a forward pass costs, by rows and padded length: the numbers that batches are bounded by.

    python benchmarks/worker/passes.py FOLDER --device cuda

Prints the milliseconds of a pass of laya's model on a device (the best of several), and the fit of
`a + b * rows * length` over the passes of up to 4,096 tokens: `a / b` is the tokens whose time a
pass costs before its first one.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "worker-py" / "src"))

ROWS = (1, 2, 4, 8, 16, 32, 64)
LENGTHS = (32, 64, 128, 256, 512)


def main() -> None:
    """Measure every size."""
    parser = argparse.ArgumentParser(description="Measure forward passes by size.")
    parser.add_argument("folder")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--repeats", type=int, default=10)
    arguments = parser.parse_args()

    from omni_jev_worker import checkpoints
    from omni_jev_worker.model import Model

    model = Model(checkpoints.from_folder(arguments.folder), arguments.device)
    print(f"{model.device}, weights {model.weights_dtype}, autocast {model.autocast_dtype}")
    print("| rows | " + " | ".join(f"{length} tokens" for length in LENGTHS) + " |")
    print("| --- |" + " --- |" * len(LENGTHS))
    sizes, times = [], []
    for rows in ROWS:
        shown = []
        for length in LENGTHS:
            best = measure(model, rows, length, arguments.repeats)
            shown.append(f"{best:.1f}")
            if rows * length <= 4096:
                sizes.append(rows * length)
                times.append(best)
        print(f"| {rows} | " + " | ".join(shown) + " |", flush=True)
    slope, fixed = np.polyfit(sizes, times, 1)
    print(f"\nfit: {fixed:.2f} ms + {slope * 1000:.3f} ms for 1,000 tokens", end="")
    print(f" (a pass costs as much as {fixed / slope:.0f} tokens)")


def measure(model: Any, rows: int, length: int, repeats: int) -> float:
    """Give the best time of a pass, in milliseconds, after one that does not count."""
    question = {"q": {"type": "noul", "instructions": "Does the customer ask for a refund?"}}
    encoded = model.encode("parcel " * 2000, question)
    item = dict(encoded.items[0])
    item["ids"] = item["ids"][:length]
    batch = [type(encoded)(("q",), encoded.internal, [item] * rows, (rows,), encoded.lost)]
    times = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        model.infer(batch)
        times.append((time.perf_counter() - start) * 1000)
    return min(times[1:])


if __name__ == "__main__":
    main()

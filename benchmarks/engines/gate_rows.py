"""How many everyday rows it takes until the parity gate shuts for a precision.

    .venv/bin/python -m benchmarks.engines.gate_rows [--engine onnx] [--weights int8]

Has an engine run all rows of the kind that `everyday` makes, of which the gate uses few, and counts
those that differ by more than the tolerance, and than half of it. Then it draws so many of them by
chance, again and again: how often does each rule shut the gate?
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from omni_jev_worker.model import Model

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "worker-py" / "src"))
# Before torch and the others are imported: one thread each.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

DRAWS = 4000
SIZES = (40, 60, 80, 100, 120, 160, 240)


def differences(checkpoint: str, engine: str, weights: str, count: int) -> Any:
    """Give the largest difference of a probability, of each of so many everyday rows."""
    from omni_jev_worker import checkpoints, everyday, log
    from omni_jev_worker.model import Model, set_threads
    from omni_jev_worker.parity import Reference
    from omni_jev_worker.scores import NotFinite

    log.set_up("warning")
    set_threads(1)
    found = (
        checkpoints.find_demo(os.environ)
        if checkpoint == "demo"
        else checkpoints.from_folder(checkpoint)
    )
    model = Model(found, "cpu", to_be_tuned=True)
    named = map(everyday.row, range(count))
    rows = [(name, model.encode(state, asked)) for name, state, asked in named]
    expected = []
    for _, encoded in rows:
        scores = model.infer([encoded])[0]
        if isinstance(scores, NotFinite):
            raise scores
        expected.append(scores)
    with tempfile.TemporaryDirectory() as folder:
        run_by(model, engine, weights, Path(folder))
        report = Reference(rows, expected, lossy=False).compare(model)
    return np.array([max(row.alone, row.together, row.act) for row in report.rows])


def run_by(model: Model, engine: str, weights: str, folder: Path) -> None:
    """Have the model run in another way, ungated."""
    from omni_jev_worker.engines import known
    from omni_jev_worker.engines.forward import Foreign
    from omni_jev_worker.engines.names import TORCH
    from omni_jev_worker.tuning import Tuning

    if engine == TORCH:
        model.tune(Tuning(weights))
        return
    other = known.find(engine)
    model.export(lambda inner: other.build(inner, model.window, weights, folder))
    forward = other.load(folder, model.window, 1)
    model.adopt(Foreign(engine, other.device, weights, "", forward))


def lines(found: Any, tolerance: float, sizes: Sequence[int] = SIZES) -> list[str]:
    """Give the counts, and how often rows drawn by chance shut the gate, by each rule."""
    told = [
        f"{len(found)} everyday rows: {(found > tolerance).sum()} differ by more than {tolerance}, "
        f"{(found > tolerance / 2).sum()} by more than half of that, the most {found.max():.4f}",
        "",
        "| rows | shut by the tolerance | by one in 40 over half of it |",
        "| --- | --- | --- |",
    ]
    chance = np.random.default_rng(1)
    for size in sizes:
        drawn = [chance.choice(found, size, replace=False) for _ in range(DRAWS)]
        past = np.mean([(each > tolerance).any() for each in drawn])
        near = np.mean([(each > tolerance / 2).sum() > size / 40 for each in drawn])
        told.append(f"| {size} | {100 * past:.0f} % | {100 * near:.1f} % |")
    return told


def main() -> None:
    """Run them, and print."""
    from omni_jev_worker.parity import TOLERANCE

    parser = argparse.ArgumentParser(description="Count rows until the parity gate shuts.")
    parser.add_argument("--checkpoint", default="demo", help="demo, or a folder")
    parser.add_argument("--engine", default="onnx")
    parser.add_argument("--weights", default="int8")
    parser.add_argument("--rows", type=int, default=1032)
    asked = parser.parse_args()
    found = differences(asked.checkpoint, asked.engine, asked.weights, asked.rows)
    sizes = [size for size in SIZES if size <= len(found)]
    # The worker's log has `print` for itself.
    print("\n".join(lines(found, TOLERANCE, sizes)), file=sys.__stdout__)


if __name__ == "__main__":
    main()

"""What each engine takes for a row, beside torch in the same run, and how far its answers are off.

    .venv/bin/python -m benchmarks.engines.engines [--shape english] [--rounds 30]

Makes a random checkpoint of a published one's shape (or takes ``--checkpoint demo|FOLDER``), has it
run by every engine in every precision that works here, on one thread each, and measures one row of
each length by all of them in turn, in an order that changes from round to round. Ratios are taken
within a round. Prints both tables; ``--json FILE`` keeps the single times too.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "worker-py" / "src"))
# Before torch and the others are imported: one thread each.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

from benchmarks.engines import subjects  # noqa: E402
from benchmarks.engines.subjects import TORCH, Subject  # noqa: E402
from benchmarks.worker import random_checkpoint  # noqa: E402

LENGTHS = (32, 64, 128, 256, 512)
NOT_RUN = {"torch fp16": "not run: a GPU's"}

Times = dict[int, dict[str, list[float]]]


def ways() -> dict[str, Any]:
    """Give every way to run a checkpoint by its name."""
    from omni_jev_worker.engines.names import ENGINES, WEIGHTS
    from omni_jev_worker.tuning import FP16, Tuning

    found = {
        f"{engine} {weights}": Tuning(weights, engine=engine)
        for engine in ENGINES
        for weights in WEIGHTS[engine]
    }
    return {name: way for name, way in found.items() if name != f"torch {FP16}"}


def measure(those: Sequence[Subject], lengths: Sequence[int], rounds: int) -> Times:
    """Time a row of each length by each, in ms."""
    chance = random.Random(1)
    times: Times = {length: {each.name: [] for each in those} for length in lengths}
    for length in lengths:
        rows = {each.name: each.row(length) for each in those}
        for number in range(rounds + 1):
            for each in chance.sample(list(those), len(those)):
                if each.model is None:
                    continue
                begun = time.perf_counter()
                each.model.infer([rows[each.name]])
                if number:
                    times[length][each.name].append(1000 * (time.perf_counter() - begun))
        print(f"measured {length} tokens", file=sys.stderr, flush=True)
    return times


def speed_lines(times: Times) -> list[str]:
    """Give the table of times and ratios."""
    lines = [
        "| tokens | | p50 ms | of torch fp32's, median and quartiles |",
        "| --- | --- | --- | --- |",
    ]
    for length, found in times.items():
        for name, own in found.items():
            ratios = [one / other for one, other in zip(own, found[TORCH], strict=True)]
            low, middle, high = statistics.quantiles(ratios, n=4)
            shown = f"{middle:.2f} ({low:.2f} to {high:.2f})" if name != TORCH else "1"
            lines.append(f"| {length} | {name} | {statistics.median(own):.1f} | {shown} |")
    return lines


def parity_lines(those: Sequence[Subject]) -> list[str]:
    """Give the table of differences."""
    lines = [
        "| | hard mismatches | near ties | largest difference | gate |",
        "| --- | --- | --- | --- | --- |",
    ]
    for each in those:
        report = each.parity
        if report is not None:
            gate = "open" if report.fault is None else f"shut: {report.fault}"
            numbers = f"{report.hard_mismatches} | {report.near_ties} | {report.largest:.1e}"
            lines.append(f"| {each.name} | {numbers} | {gate} |")
        elif each.name != TORCH:
            lines.append(f"| {each.name} | | | | {each.reason} |")
    lines += [f"| {name} | | | | {reason} |" for name, reason in NOT_RUN.items()]
    return lines


def main() -> None:
    """Prepare, measure, print."""
    parser = argparse.ArgumentParser(description="Measure the engines beside each other.")
    parser.add_argument("--shape", choices=random_checkpoint.SHAPES, default="english")
    parser.add_argument("--checkpoint", help="demo, or a folder, in place of a random one")
    parser.add_argument("--cache", type=Path, help="where artifacts are kept (default: nowhere)")
    parser.add_argument("--proved", action="store_true", help="do not prove what is proved again")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS)
    parser.add_argument(
        "--only", nargs="+", help="these ways and torch fp32 (default: all but mlx)"
    )
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run(options, Path(folder))


def run(options: argparse.Namespace, scratch: Path) -> None:
    """Do all of it, with a folder for what goes at the end."""
    from omni_jev_worker import checkpoints, log
    from omni_jev_worker.known_answers import KnownAnswers
    from omni_jev_worker.model import set_threads

    log.set_up("warning")
    set_threads(1)
    if options.checkpoint == "demo":
        checkpoint = checkpoints.find_demo(os.environ)
    else:
        if options.checkpoint is None:
            random_checkpoint.make(scratch / "random", options.shape)
        checkpoint = checkpoints.from_folder(options.checkpoint or str(scratch / "random"))
    known = KnownAnswers(scratch, checkpoint.folder, {})
    cache = options.cache or scratch / "artifacts"
    those = []
    # MLX would take hours on a CPU.
    names = options.only or [name for name, way in ways().items() if way.engine != "mlx"]
    for name, way in ways().items():
        if name not in (TORCH, *names):
            continue
        compares = not options.proved
        those.append(subjects.prepare(name, way, checkpoint, known, cache, compares=compares))
        print(f"prepared {name} {those[-1].reason}", file=sys.stderr, flush=True)
    running = [each for each in those if each.model is not None]
    times = measure(running, options.lengths, options.rounds)
    lines = [f"{checkpoint.name}, one thread, {options.rounds} rounds", ""]
    lines += [*speed_lines(times), "", *parity_lines(those)]
    # The worker's log has `print` for itself.
    print("\n".join(lines), file=sys.__stdout__)
    if options.json is not None:
        options.json.write_text(json.dumps(times, indent=1))


if __name__ == "__main__":
    main()

"""Out of memory on the device: the request that meets it, the next ones, and the recovery.

    python benchmarks/laya/fallback.py --run paper --device cuda
    python benchmarks/laya/fallback.py --run paper --device mps --watermark 0.2
    python benchmarks/laya/fallback.py --run feasibility --simulate

Asks small requests alone; then, with the device's memory taken, one large request and small ones;
then small ones again with the memory given back, until `/health` says that all is as before. On
CUDA another process takes the memory. On MPS the worker starts with PyTorch's limit lowered
(`--watermark`, a share of what Metal recommends), so that large requests do not fit, and nothing is
given back. `--simulate` makes the end of memory up, on a CPU: it shows the way, not a device.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.gpu.outcome import percentile
from benchmarks.gpu.workload import LONGEST, ONE, Workload
from benchmarks.laya import shortage
from benchmarks.laya.asking import Client, Refused
from benchmarks.laya.inputs import Input, timed
from benchmarks.laya.results import Line, table
from benchmarks.laya.session import NOT_HERE, Session, add_servers, guarded, parser
from benchmarks.laya.subjects import Subject

_LARGE = (64, LONGEST)
"""Questions of the large request, and tokens of each of its rows."""
_SIMULATED_LARGE = (12, 68)
_SIMULATED_ROWS = 4
"""What a pass may have when an end of memory is made up."""
_PHASES = {
    "before": "small ones before",
    "large, memory enough": "a large one before",
    "large, memory short": "the large one that meets the end of memory",
    "short": "small ones after it, memory still short",
    "recovery": "small ones until it is as before",
    "after": "small ones after that",
    "large, after": "a large one after that",
}
_LOOK_EVERY = 0.2


def measure(run: Session) -> None:
    """Go through it, and print the table."""
    options = run.options
    flag = run.scratch / "short"
    starter = run.starter()
    if options.device == "mps":
        os.environ["PYTORCH_MPS_HIGH_WATERMARK_RATIO"] = str(options.watermark)
        os.environ["PYTORCH_MPS_LOW_WATERMARK_RATIO"] = str(options.watermark)
    program = ["-m", "omni_jev_worker"]
    if options.simulate:
        program = [str(Path(__file__).with_name("fallback_worker.py")), str(flag)]
        program.append(str(_SIMULATED_ROWS))
    subject = starter.worker([], "the worker", program=program)
    lines: list[Line] = []
    asker = _Asker(run, subject, lines)
    sizes = _SIMULATED_LARGE if options.simulate else _LARGE
    small, much = timed(["one-68"])[0], large(run.folder, *sizes)
    asker.several("before", small, options.count)
    if options.device != "mps":
        asker.one("large, memory enough", much)
    home = subject.health().get("device")
    taken: AbstractContextManager[None] = nullcontext()
    if options.simulate:
        taken = shortage.simulated(flag)
    elif options.device == "cuda":
        taken = shortage.on_cuda(options.leave)
    with taken:
        asker.one("large, memory short", much)
        asker.several("short", small, options.count)
    begun = time.monotonic()
    while not _as_before(subject.health(), home) and time.monotonic() - begun < options.patience:
        asker.one("recovery", small)
        time.sleep(_LOOK_EVERY)
    recovered = time.monotonic() - begun if _as_before(subject.health(), home) else None
    run.results.record("recovered", seconds=recovered)
    asker.several("after", small, options.count)
    if options.device != "mps":
        asker.one("large, after", much)
    told = "never, in the time" if recovered is None else f"after {recovered:.1f} s"
    end = subject.health().get("fallback", {})
    counted = f"{end.get('splits')} batches run in parts, {end.get('count')} questions on the CPU"
    print(f"{summary(lines)}\n\nAs before with the memory given back: {told}. {counted}.")


class _Asker:
    """Asks, and notes what came of it and where the model was then."""

    def __init__(self, run: Session, subject: Subject, lines: list[Line]) -> None:
        self._run = run
        self._subject = subject
        self._client = Client(subject)
        self._lines = lines

    def one(self, phase: str, asked: Input) -> None:
        """Ask once; a refusal is an outcome too."""
        begun = time.monotonic()
        try:
            self._client.ask(asked)
            outcome = "200"
        except (Refused, OSError) as fault:
            outcome = str(fault)[:200]
            self._client.close()
            self._client = Client(self._subject)
        line = {
            "phase": phase,
            "ms": (time.monotonic() - begun) * 1000,
            "outcome": outcome,
            "device": self._subject.health().get("device"),
            "fallback": self._subject.health().get("fallback"),
        }
        self._run.results.record("asked", **line)
        self._lines.append(line)

    def several(self, phase: str, asked: Input, count: int) -> None:
        """Ask one after the other."""
        for _ in self._run.bars.over(phase, range(count), count):
            self.one(phase, asked)


def _as_before(health: Mapping[str, Any], home: object) -> bool:
    return health.get("status") == "ready" and health.get("device") == home


def large(folder: Path, questions: int, tokens: int) -> Input:
    """Make a request of so many questions, whose rows have so many tokens each."""
    workload = Workload(folder)
    state = " ".join(workload.words[: tokens - workload.fixed(ONE[0])])
    body = {"state": state, "questions": {f"q{number}": ONE[0] for number in range(questions)}}
    return Input("large", f"{questions} questions", body, questions * tokens)


def summary(lines: Sequence[Line]) -> str:
    """Draw the table: each phase's times and outcomes, and where the model was."""
    head = ["", "requests", "p50 ms", "longest ms", "not answered", "model on"]
    rows = []
    for phase, told in _PHASES.items():
        found = [line for line in lines if line["phase"] == phase]
        if not found:
            continue
        times = [line["ms"] for line in found]
        failed = sum(line["outcome"] != "200" for line in found)
        where = ", ".join(sorted({str(line["device"]) for line in found}))
        cells = [told, str(len(found)), f"{percentile(times, 0.5):.1f}", f"{max(times):.1f}"]
        rows.append([*cells, str(failed), where])
    return table(head, rows)


def arguments() -> argparse.ArgumentParser:
    """Give its flags."""
    made = parser(__doc__)
    made.add_argument("--simulate", action="store_true", help="on a CPU: an end that is made up")
    made.add_argument("--leave", type=int, default=64, help="MiB of a CUDA device left free")
    made.add_argument("--watermark", type=float, default=0.2, help="of MPS's recommended memory")
    made.add_argument("--count", type=int, default=20, help="small requests of a phase")
    made.add_argument("--patience", type=float, default=120.0, help="seconds for the recovery")
    add_servers(made)
    return made


def main() -> int:
    """Read the command line and measure; the exit code."""
    options = arguments().parse_args()
    if options.simulate and options.device != "cpu":
        raise SystemExit("error: --simulate: it is for --device cpu")
    if options.device == "cpu" and not options.simulate:
        print("not run: a CPU has no memory of its own to run out of; --simulate", file=sys.stderr)
        return NOT_HERE
    return guarded("fallback", "simulated" if options.simulate else "", options, measure)


if __name__ == "__main__":
    sys.exit(main())

"""Out of memory on the device: the request that meets it, the next ones, and the recovery.

    python benchmarks/laya/fallback.py --run paper --device cuda
    python benchmarks/laya/fallback.py --run paper --device mps --watermark 0.2
    python benchmarks/laya/fallback.py --run feasibility --simulate

Asks small requests alone; then, with the device's memory taken, one large request and small ones;
then both again with the memory given back, until a large one runs whole. On CUDA another process
holds the memory, and more of it until a batch has really failed. On MPS the worker starts with
PyTorch's limit lowered (`--watermark`, a share of what Metal recommends), so that large requests do
not fit, and nothing is given back. `--simulate` makes the end of memory up, on a CPU: it shows the
way, not a device. A run in which no batch failed has shown nothing, and fails.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.gpu.workload import LONGEST, Workload
from benchmarks.laya import shortage
from benchmarks.laya.asking import Client, Refused
from benchmarks.laya.inputs import Input, timed
from benchmarks.laya.results import Line, Run, read, table
from benchmarks.laya.session import NOT_HERE, Session, add_servers, guarded, parser
from benchmarks.laya.subjects import Subject
from benchmarks.percentiles import percentile

_LARGE = (64, LONGEST)
"""Questions of the large request, and tokens of each of its rows."""
_OPTIONS = 40
_SIMULATED_LARGE = (12, 68)
_SIMULATED_ROWS = 2
"""What a pass may have when an end of memory is made up."""
_PHASES = {
    "before": "small ones before",
    # Only where memory is made up: a device would keep what it took for this one.
    "large, memory enough": "a large one before",
    "large, memory short, fits": "a large one with less memory left, which still fits",
    "large, memory short": "the large one that meets the end of memory",
    "short": "small ones after it, memory still short",
    "recovery": "small ones until it is as before",
    "large, recovery": "large ones until one runs whole",
    "after": "small ones after that",
    "large, after": "a large one after that",
}
_LOOK_EVERY = 0.2
_TOLD_WITHIN = 0.5
"""Seconds after an answer in which `/health` tells of its batches at the latest."""


class NothingFailed(ValueError):
    """The memory sufficed all the same."""


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
    asker = _Asker(run, subject)
    sizes = _SIMULATED_LARGE if options.simulate else _LARGE
    small, much = timed(["one-68"])[0], large(run.folder, *sizes)
    asker.several("before", small, options.count)
    if options.simulate:
        asker.one("large, memory enough", much)
    home = subject.health().get("device")
    with _shortage(options, flag) as hold:
        meet_the_end(asker, much, hold)
        asker.several("short", small, options.count)
    begun = time.monotonic()
    # MPS's limit stays as low as it is.
    wanted = None if options.device == "mps" else much
    recovered = recover(asker, small, wanted, home, begun + options.patience)
    run.results.record("recovered", seconds=time.monotonic() - begun if recovered else None)
    asker.several("after", small, options.count)
    if wanted is not None:
        asker.one("large, after", much)
    run.results.record("last", fallback=subject.health().get("fallback", {}))
    print(told(recorded(run.results.path)))


Hold = Callable[[], bool]
"""Holds more of the device's memory; false where there is no more to hold."""


@contextmanager
def _shortage(options: argparse.Namespace, flag: Path) -> Iterator[Hold]:
    """Take the memory within the block, as it is taken on that device."""
    if options.device == "cuda":
        with shortage.on_cuda(options.leave) as hog:
            yield hog.more
    else:
        with shortage.simulated(flag) if options.simulate else nullcontext():
            yield lambda: False


def meet_the_end(asker: _Asker, much: Input, hold: Hold) -> None:
    """Ask a large one until a batch of it has failed. Raises `NothingFailed`."""
    while not asker.failing("large, memory short", much, otherwise="large, memory short, fits"):
        if not hold():
            raise NothingFailed("no batch failed for want of memory: hold more, or ask for more")


def recover(asker: _Asker, small: Input, much: Input | None, home: object, until: float) -> bool:
    """Ask until the model is at home and a large one runs whole; false where it never does."""
    while time.monotonic() < until:
        if asker.is_at_home(home):
            if much is None or not asker.failing("large, recovery", much):
                return True
        else:
            asker.one("recovery", small)
        time.sleep(_LOOK_EVERY)
    return False


class _Asker:
    """Asks, and notes what came of it and where the model was then."""

    def __init__(self, run: Session, subject: Subject) -> None:
        self._run = run
        self._subject = subject
        self._client = Client(subject)

    def is_at_home(self, home: object) -> bool:
        """Say whether the worker is as it was."""
        health = self._subject.health()
        return health.get("status") == "ready" and health.get("device") == home

    def failing(self, phase: str, asked: Input, otherwise: str = "") -> bool:
        """Ask once, and say whether a batch failed for want of memory; another phase if none."""
        before = _ends(self._subject.health().get("fallback"))
        line = self._ask(asked)
        until = time.monotonic() + _TOLD_WITHIN
        while _ends(line["fallback"]) == before and time.monotonic() < until:
            time.sleep(_LOOK_EVERY / 10)
            line = {**line, "fallback": self._subject.health().get("fallback")}
        failed = _ends(line["fallback"]) > before or line["outcome"] != "200"
        self._record(phase if failed or not otherwise else otherwise, line)
        return failed

    def one(self, phase: str, asked: Input) -> None:
        """Ask once; a refusal is an outcome too."""
        self._record(phase, self._ask(asked))

    def _record(self, phase: str, line: Line) -> None:
        self._run.results.record("asked", phase=phase, **line)

    def _ask(self, asked: Input) -> Line:
        begun = time.monotonic()
        try:
            self._client.ask(asked)
            outcome = "200"
        except (Refused, OSError) as fault:
            outcome = str(fault)[:200]
            self._client.close()
            self._client = Client(self._subject)
        took = (time.monotonic() - begun) * 1000
        health = self._subject.health()
        where = {"device": health.get("device"), "fallback": health.get("fallback")}
        return {"ms": took, "outcome": outcome, **where}

    def several(self, phase: str, asked: Input, count: int) -> None:
        """Ask one after the other."""
        for _ in self._run.bars.over(phase, range(count), count):
            self.one(phase, asked)


def _ends(told: Mapping[str, Any] | None) -> int:
    """Count the times that memory ended, as `/health` tells."""
    return int(told["splits"]) + int(told["count"]) if told else 0


def large(folder: Path, questions: int, tokens: int) -> Input:
    """Make a request of so many questions, whose rows have so many tokens each.

    Their options are more than any recorded shape has, so that the rows need memory of their own.
    """
    workload = Workload(folder)
    criteria = {f"option {number}": None for number in range(_OPTIONS)}
    asked = {"type": "choice", "instructions": "Which?", "criteria": criteria}
    state = " ".join(workload.words[: max(8, tokens - workload.fixed(asked))])
    body = {"state": state, "questions": {f"q{number}": asked for number in range(questions)}}
    return Input("large", f"{questions} questions", body, questions * tokens)


def recorded(path: Path) -> Run:
    """Give the last run of a file."""
    return read([path])[-1]


def told(run: Run) -> str:
    """Write a run's table, when it was as before, and how often memory ended."""
    seconds = run.one("recovered").get("seconds")
    when = "never, in the time" if seconds is None else f"after {seconds:.1f} s"
    asked = run.of("asked")
    end = run.one("last").get("fallback") or asked[-1]["fallback"]
    counted = f"{end.get('splits')} batches run in parts, {end.get('count')} questions on the CPU"
    return f"{summary(asked)}\n\nAs before with the memory given back: {when}. {counted}."


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
    made.add_argument(
        "--leave", type=int, default=32, help="MiB of a CUDA device left free, at first"
    )
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

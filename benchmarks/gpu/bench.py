"""omni-jev on a GPU, with every bar of its table, beside upstream's own server.

    python benchmarks/gpu/bench.py --device cuda --binary target/release/omni-jev \
        --flags "--compile --weights fp16"

Makes a random checkpoint of the english shape unless it is given one, starts upstream's server and
then omni-jev (once with an empty and once with a full compile cache), measures both over HTTP,
compares answers with laya's own in fp32 on the CPU, prints the table and keeps every raw result.
Exits with 1 if a bar is not met, a stage failed or an answer is wrong, and with 75 if there is no
such device here.
"""

from __future__ import annotations

import argparse
import importlib.util
import multiprocessing
import os
import shlex
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.gpu import machine, plan
from benchmarks.gpu.progress import Progress
from benchmarks.gpu.reference import Reference, compare
from benchmarks.gpu.servers import ROOT, OmniJev, Upstream
from benchmarks.gpu.stages import Stages
from benchmarks.gpu.table import NOT_RUN, ROWS, Figure, Table, not_run
from benchmarks.gpu.workload import Workload
from benchmarks.worker import random_checkpoint

NOT_HERE = 75
_MOST_PER_SECOND = {"cuda": 4000, "mps": 1500, "cpu": 400}
"""Answers of 128 tokens for which there are requests."""

_OURS_ALONE = [
    row
    for row in ROWS
    if row.stage in ("direct", "memory", "complaints")
    or row.key in ("ready.warm", "difference.together")
]
"""Rows of what upstream has not, or that would take too long."""


class Bench:
    """One run."""

    def __init__(self, options: argparse.Namespace, progress: Progress, scratch: Path) -> None:
        self.options = options
        self.progress = progress
        self.scratch = scratch
        self.flags: list[str] = shlex.split(options.flags)
        self.folder: Path = options.model or scratch / "checkpoint"
        self.before = machine.gpu_bytes()
        """What nvidia-smi says before anything is started."""

    def run(self) -> Table:
        """Measure everything."""
        if self.options.model is None:
            self._make_checkpoint()
        options, progress = self.options, self.progress
        described = machine.describe(options.device, options.binary, self.folder)
        progress.record("run", "machine", flags=self.flags, **described)
        progress.say(f"{described['device_name']}, load {described['load_average'][0]:.1f}")
        theirs, mine = plan.efforts(options.seconds)
        asked = plan.make(
            Workload(self.folder), mine, most_per_second=_MOST_PER_SECOND[options.device]
        )
        progress.say("the requests are made")
        upstream = Stages("upstream", asked, theirs, progress, options.only, not_run("not asked"))
        ours = Stages("omni-jev", asked, mine, progress, options.only, not_run("not asked"))
        with ExitStack() as ending:
            reference: Reference | None = None
            if "parity" in options.only:
                reference = Reference(self.folder, asked.mixed, self.scratch)
                ending.callback(reference.close)
            self._measure_upstream(upstream, reference)
            self._measure_ours(ours, reference)
            if reference is not None:
                self._compare(reference, upstream, ours)
        for note in (*upstream.notes, *ours.notes):
            progress.say(f"note: {note}")
        return Table(
            upstream.figures,
            ours.figures,
            judged=options.device == "cuda",
            published=options.device == "mps",
        )

    def _make_checkpoint(self) -> None:
        """Make it in a process of its own, whose memory is given back."""
        making = multiprocessing.get_context("spawn").Process(
            target=random_checkpoint.make, args=(self.folder, "english")
        )
        making.start()
        making.join()
        if making.exitcode != 0:
            raise SystemExit(f"error: the checkpoint was not made (exit {making.exitcode})")
        self.progress.say(f"a random checkpoint of the english shape is in {self.folder}")

    def _log(self, name: str) -> Path:
        results: Path = self.options.results
        return results.with_name(f"{results.stem}-{name}.log")

    def _folder(self, name: str) -> Path:
        """Make a folder with a short path: those of sockets end at some 104 bytes."""
        made = self.scratch / name
        made.mkdir()
        return made

    def _measure_upstream(self, stages: Stages, reference: Reference | None) -> None:
        options = self.options
        if not options.upstream:
            return
        stages.figures |= not_run("not measured of upstream", _OURS_ALONE)
        if importlib.util.find_spec("fastapi") is None:
            stages.figures |= not_run("fastapi, which upstream's server needs, is not installed")
            return
        try:
            folder = self._folder("u")
            with Upstream(self.folder, options.device, folder, self._log("upstream")) as server:
                # Beside the reference: its readiness has no bar.
                ready = server.until_ready(min(options.ready_timeout, self.progress.left))
                self.progress.say(f"upstream: ready after {ready:.1f} s (beside the reference)")
                if "ready" in options.only:
                    stages.figures["ready.cold"] = ready
                with _still(reference):
                    stages.first(server)
                    stages.sequential(server)
                stages.parity(server, together=False)
                with _still(reference):
                    stages.throughput(server)
                    stages.arrivals(server)
        except Exception as error:
            self._failed(stages, error)
        stages.compare_first()

    def _measure_ours(self, stages: Stages, reference: Reference | None) -> None:
        options = self.options
        flags = ["--device", options.device, "--require-device", "--model", str(self.folder)]
        flags += self.flags
        compiled = "--compile" in self.flags
        if compiled and "--compile-cache" not in self.flags:
            flags += ["--compile-cache", str(self._folder("cache"))]
        try:
            if "ready" in options.only or "first" in options.only:
                self._start_cold(stages, flags, reference)
            with ExitStack() as running:
                with _still(reference):
                    server = running.enter_context(self._started(stages, flags, "warm"))
                    stages.sequential(server)
                    stages.direct(server.worker_address)
                    stages.throughput(server)
                    stages.arrivals(server)
                stages.parity(server)
                stages.memory(server, before=self._held_before)
                stages.complaints(server, compiled=compiled)
        except Exception as error:
            self._failed(stages, error)
        stages.compare_first()

    def _start_cold(
        self, stages: Stages, flags: Sequence[str], reference: Reference | None
    ) -> None:
        """Start omni-jev once, only to see it ready; if it does not get there, the next may."""
        try:
            with _still(reference), self._started(stages, flags, "cold"):
                pass
        except Exception as error:
            stages.figures["ready.cold"] = f"failed: {type(error).__name__}: {error}"
            self.progress.say(f"omni-jev: {stages.figures['ready.cold']}")

    @contextmanager
    def _started(self, stages: Stages, flags: Sequence[str], which: str) -> Iterator[OmniJev]:
        """Start omni-jev, time its readiness and its first request, and end it with the block."""
        folder = self._folder(which)
        with OmniJev(self.options.binary, flags, folder, self._log(which)) as server:
            ready = server.until_ready(min(self.options.ready_timeout, self.progress.left))
            self.progress.record("omni-jev", f"ready {which}", seconds=ready, flags=flags)
            self.progress.say(f"omni-jev: ready after {ready:.1f} s ({which})")
            if "ready" in self.options.only:
                stages.figures[f"ready.{which}"] = ready
            stages.first(server)
            self.progress.record("omni-jev", f"health {which}", health=server.health())
            yield server

    @property
    def _held_before(self) -> float:
        return self.before[0] if self.before else 0.0

    def _failed(self, stages: Stages, error: Exception) -> None:
        """Mark every row that has no figure yet: the server it needed is not there."""
        reason = f"failed: {type(error).__name__}: {error}"
        self.progress.say(f"{stages.side}: {reason}")
        self.progress.record(stages.side, "server", failed=reason)
        for row in ROWS:
            asked = row.stage in (*self.options.only, "complaints")
            asked = asked and not (stages.side == Upstream.name and row in _OURS_ALONE)
            if asked and str(stages.figures[row.key]).startswith(NOT_RUN):
                stages.figures[row.key] = reason

    def _compare(self, reference: Reference, *sides: Stages) -> None:
        """Set the answers against the reference's, once it has them."""
        try:
            right = reference.answers(max(10.0, self.progress.left))
        except Exception as error:
            for stages in sides:
                for key in ("difference", "difference.together", "mismatches"):
                    stages.figures[key] = f"failed: {error}"
            return
        self.progress.say("the reference's answers are there")
        self.progress.record("reference", "answers", answers=right)
        for stages in sides:
            figures: dict[str, Figure] = {}
            mismatches = 0
            for when, key in (("alone", "difference"), ("together", "difference.together")):
                if when not in stages.answers:
                    continue
                try:
                    found = compare(stages.answers[when], right)
                except (ValueError, KeyError) as error:
                    figures[key] = figures["mismatches"] = f"failed: {error}"
                    continue
                mismatches += found.mismatches
                figures[key] = found.largest
                figures.setdefault("mismatches", 0.0)
                self.progress.say(
                    f"{stages.side}, {when}: {found.largest:.4f} at most in {found.questions} "
                    f"questions ({found.where}), {found.mismatches} mismatches"
                )
            if isinstance(figures.get("mismatches"), float):
                figures["mismatches"] = float(mismatches)
            stages.figures |= figures


@contextmanager
def _still(reference: Reference | None) -> Iterator[None]:
    if reference is None:
        yield
    else:
        with reference.still():
            yield


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", choices=_MOST_PER_SECOND, default="cuda")
    parser.add_argument("--binary", type=Path, default=ROOT / "target/release/omni-jev")
    parser.add_argument("--model", type=Path, help="a checkpoint's folder; default: a random one")
    parser.add_argument(
        "--flags", default="--compile --weights fp16", help="the worker's (default: %(default)s)"
    )
    parser.add_argument("--upstream", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--only", default=",".join(plan.STAGES), help="some of: %(default)s")
    parser.add_argument("--seconds", type=float, default=8.0, help="of a stage with many clients")
    parser.add_argument("--ready-timeout", type=float, default=240.0, help="seconds, of each start")
    parser.add_argument("--limit", type=float, default=540.0, help="seconds, of the whole run")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/gpu/results")
    options = parser.parse_args()
    options.only = options.only.split(",")
    unknown = set(options.only) - set(plan.STAGES)
    if unknown:
        parser.error(f"--only: no stage {', '.join(sorted(unknown))}; there are {plan.STAGES}")
    # The servers have working directories of their own.
    options.binary = options.binary.absolute()
    options.model = options.model and options.model.absolute()
    options.results = (
        options.out.absolute() / f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}.jsonl"
    )
    return options


def main() -> int:
    """Read the command line and measure; the exit code."""
    options = _arguments()
    reason = machine.out_of_reach(options.device)
    if reason is not None:
        nothing = not_run(reason)
        print(Table(nothing, nothing, judged=False, published=options.device == "mps").markdown())
        print(f"\n{NOT_RUN}: {reason}")
        return NOT_HERE
    if not options.binary.is_file():
        raise SystemExit(f"error: no binary {options.binary}: cargo build --release")
    # An end by a time limit ends what was started too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    progress = Progress(options.results, options.limit)
    with tempfile.TemporaryDirectory(prefix="oj-", dir="/tmp") as scratch:
        table = Bench(options, progress, Path(scratch)).run()
    drawn, misses = table.markdown(), table.misses()
    options.results.with_suffix(".md").write_text(drawn + "\n")
    progress.record(
        "run",
        "table",
        upstream=table.upstream,
        ours=table.ours,
        misses=misses,
        load_average=os.getloadavg(),
    )
    print(f"\n{drawn}\n")
    for miss in misses:
        print(f"not good: {miss}")
    progress.say(f"raw results: {options.results}")
    return 1 if misses else 0


if __name__ == "__main__":
    sys.exit(main())

"""What programs share: flags, refusal of unfit machines, scratch folders, what is recorded."""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shlex
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.gpu import machine
from benchmarks.gpu.servers import ROOT, StartFailed
from benchmarks.laya import conditions, inputs
from benchmarks.laya.asking import Refused
from benchmarks.laya.bars import Bars
from benchmarks.laya.results import RESULTS, Results
from benchmarks.laya.subjects import Starter

DEMO: Final = ROOT / "recipe" / "demo" / "checkpoint"
NOT_HERE: Final = 75
"""The exit code where this machine lacks what is to be measured."""
REFUSED: Final = 3
"""The exit code where this machine is not fit to be measured now."""
_VARIABLES: Final = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "TOKENIZERS_PARALLELISM",
    "PYTORCH_ENABLE_MPS_FALLBACK",
    "PYTORCH_MPS_HIGH_WATERMARK_RATIO",
    "PYTORCH_CUDA_ALLOC_CONF",
)
"""Of the environment, what changes a result."""


def parser(doc: str | None) -> argparse.ArgumentParser:
    """Make a parser of the flags that all measuring programs have."""
    made = argparse.ArgumentParser(
        description=(doc or "").partition("\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    made.add_argument(
        "--run",
        type=_label,
        default=conditions.FEASIBILITY,
        help="the run's label; results of equal ones join",
    )
    made.add_argument("--device", choices=("cpu", "mps", "cuda"), default="cpu")
    made.add_argument(
        "--model", default=str(DEMO), help="a folder in Laya's format, or a published one's name"
    )
    made.add_argument("--max-load", type=float, default=conditions.MOST_LOAD, help="see --run")
    made.add_argument("--out", type=Path, default=RESULTS, help="the folder of results")
    return made


def _label(text: str) -> str:
    """Take a label that can be a part of a file's name."""
    if not re.fullmatch(r"[\w.-]{1,40}", text):
        raise argparse.ArgumentTypeError("a label is letters, digits, points, hyphens, 40 at most")
    return text


def add_servers(made: argparse.ArgumentParser) -> None:
    """Add the flags of what starts servers."""
    binary = os.environ.get("OMNI_JEV_BINARY") or ROOT / "target" / "release" / "omni-jev"
    made.add_argument("--frontend", type=Path, default=Path(binary), help="the binary omni-jev")
    made.add_argument("--flags", default="", help="of every worker of ours")
    made.add_argument("--ready-timeout", type=float, default=600.0, help="seconds of each start")


def add_inputs(made: argparse.ArgumentParser) -> None:
    """Add the flags that choose what is asked."""
    made.add_argument("--only", default="", help="some of the six timed inputs: NAME,NAME")
    made.add_argument(
        "--replay", type=Path, help="a file of your own requests, one a line, instead of the six"
    )


def chosen_inputs(options: argparse.Namespace) -> list[inputs.Input]:
    """Give what is asked. Ends the program where there is nothing."""
    try:
        if options.replay is not None:
            return inputs.read(options.replay)
        return inputs.timed([name for name in options.only.split(",") if name])
    except (OSError, ValueError) as error:
        raise SystemExit(f"error: {error}") from None


def checkpoint_folder(model: str) -> Path:
    """Give a checkpoint's folder; a published one must be in the hub's cache."""
    if Path(model).is_dir():
        return Path(model).resolve()
    # Where it is not installed.
    sys.path.append(str(ROOT / "worker-py" / "src"))
    from omni_jev_worker import hub
    from omni_jev_worker.checkpoints import HUB_FOLDERS
    from omni_jev_worker.exits import Refusal

    if model not in HUB_FOLDERS:
        raise SystemExit(f"error: --model {model}: no folder, and none of {', '.join(HUB_FOLDERS)}")
    os.environ["HF_HUB_OFFLINE"] = "1"
    try:
        return hub.get(model, None, os.environ).folder
    except Refusal as refusal:
        raise SystemExit(f"error: {refusal}") from None


@dataclass
class Session:
    """One run of a program."""

    results: Results
    bars: Bars
    scratch: Path
    folder: Path
    """The checkpoint's."""
    options: argparse.Namespace
    stack: ExitStack
    """Ends with the run."""

    def starter(self, **more: Any) -> Starter:
        """Give what starts servers, which end with the run."""
        options = self.options
        binary = options.frontend.absolute()
        return Starter(
            self.stack,
            self.scratch,
            self.results.path.with_suffix(".logs"),
            options.device,
            self.folder,
            binary,
            flags=shlex.split(options.flags),
            patience=options.ready_timeout,
            **more,
        )


@contextmanager
def session(program: str, config: str, options: argparse.Namespace) -> Iterator[Session]:
    """Begin a run, and record how it ended. Ends the program where it is refused."""
    found = conditions.now()
    refusal = found.refusal(options.run, options.max_load)
    if refusal is not None:
        print(f"refused: {refusal}", file=sys.stderr)
        raise SystemExit(REFUSED)
    missing = machine.out_of_reach(options.device)
    if missing is not None:
        print(f"not run: {missing}", file=sys.stderr)
        raise SystemExit(NOT_HERE)
    folder = checkpoint_folder(options.model)
    binary = getattr(options, "frontend", None)
    if binary is not None and not binary.is_file():
        binary = None
    # An end by a time limit ends what was started too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    results = Results(options.out.absolute(), program, config, options.run)
    begun = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="oj-", dir="/tmp") as scratch,
        ExitStack() as stack,
        Bars() as bars,
    ):
        results.record(
            "meta",
            at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            workload=workload_hash(),
            variables={name: value for name, value in os.environ.items() if name in _VARIABLES},
            **found.record(),
            **machine.describe(options.device, binary, folder),
        )
        bars.say(f"{program} {config} {options.run}: power {found.power}, load {found.load:.2f}")
        if options.run == conditions.FEASIBILITY:
            bars.say("labelled feasibility: it shows that all works, its numbers mean nothing")
        yield Session(results, bars, Path(scratch), folder, options, stack)
        after = conditions.now().record()
        results.record("end", seconds=round(time.monotonic() - begun, 2), **after)
        bars.say(f"results: {results.path}")


def guarded(
    program: str, config: str, options: argparse.Namespace, measure: Callable[[Session], None]
) -> int:
    """Measure in a run; the exit code. A server that fails is recorded and told in a line."""
    with session(program, config, options) as run:
        try:
            measure(run)
        except (StartFailed, Refused, OSError, ValueError) as error:
            run.results.record("failed", reason=f"{type(error).__name__}: {error}")
            print(f"failed: {error}", file=sys.stderr)
            return 1
    return 0


def workload_hash() -> str:
    """Give the SHA-256 of the fixed files together."""
    digest = hashlib.sha256()
    for name in ("timed.jsonl", "answers.jsonl"):
        digest.update((inputs.WORKLOAD / name).read_bytes())
    return digest.hexdigest()

"""Tables and plots of the raw results, how much runs differ, and whether answers are the same.

    python benchmarks/laya/report.py benchmarks/laya/results/bench_*_feasibility.jsonl --ref C1

Writes `report.md` with its plots (PNG and SVG) into `--out`, and prints it. Exits with 1 if a run
failed or was broken off, if equal runs differ by more than `--gate`, or if answers differ from
those of `--ref` by more than `--parity`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.laya import plots, tables
from benchmarks.laya.results import RESULTS, Run, read

_MEASURED = ("bench_inproc", "bench_http")


def write(runs: Sequence[Run], options: argparse.Namespace) -> tuple[str, list[str]]:
    """Make the report's text, with its plots in files, and give what is not good in it."""
    misses = [
        f"{tables.named(run)} {run.id}: {tables.state(run)}"
        for run in runs
        if tables.state(run) != "whole"
    ]
    parts = {
        "Runs": tables.runs_table(runs),
        "Start, first request and memory": tables.starts_table(runs),
        "Warm latency": tables.warm_table(runs),
        "Poisson arrivals": tables.arrivals_table(runs),
    }
    gate = tables.gate(runs, options.gate)
    parts["From run to run"] = gate.markdown
    misses += gate.misses
    if options.ref is not None:
        parity = tables.parity(runs, options.ref, options.parity)
        parts["Answers"] = parity.markdown
        misses += parity.misses
    text = "\n\n".join(f"## {title}\n\n{part}" for title, part in parts.items())
    if options.plots:
        drawn = plots.draw(runs, options.out)
        text += "\n\n## Plots\n\n" + "\n\n".join(f"![{each.stem}]({each.name})" for each in drawn)
    if misses:
        text += "\n\n## Not good\n\n" + "\n".join(f"- {miss}" for miss in misses)
    return f"# Report\n\n{text}\n", misses


def arguments() -> argparse.ArgumentParser:
    """Give its flags."""
    made = argparse.ArgumentParser(
        description=(__doc__ or "").partition("\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    made.add_argument("files", type=Path, nargs="+", help="of bench_inproc and bench_http")
    made.add_argument("--ref", help="the configuration that answers are compared with")
    made.add_argument("--parity", type=float, default=0.005, help="the most they may differ")
    made.add_argument("--gate", type=float, default=0.1, help="the most that equal runs may differ")
    made.add_argument("--out", type=Path, default=RESULTS / "report", help="the report's folder")
    made.add_argument("--plots", action=argparse.BooleanOptionalAction, default=True)
    return made


def main() -> int:
    """Read the files and report; the exit code."""
    options = arguments().parse_args()
    try:
        runs = [run for run in read(options.files) if run.program in _MEASURED]
        if not runs:
            raise ValueError("no run of bench_inproc or bench_http in these files")
        tables.check_joinable(runs)
        options.out.mkdir(parents=True, exist_ok=True)
        text, misses = write(runs, options)
    except (OSError, ValueError) as error:
        raise SystemExit(f"error: {error}") from None
    except ImportError as error:
        raise SystemExit(f"error: {error}: cargo xtask setup --dev, or --no-plots") from None
    (options.out / "report.md").write_text(text, encoding="utf-8")
    print(text)
    return 1 if misses else 0


if __name__ == "__main__":
    sys.exit(main())

"""The report's plots, as PNG and SVG: latency distributions, memory over time, throughput."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.laya.results import Run
from benchmarks.laya.tables import MIB, answered, latencies, named
from benchmarks.percentiles import percentile

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLUMNS = 3


def draw(runs: Sequence[Run], folder: Path) -> list[Path]:
    """Draw what the runs have; the PNG files. Raises `ImportError` without matplotlib."""
    import matplotlib as mpl

    # No window, and the same SVG each time; numbers with points in every locale.
    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "omni-jev"
    mpl.rcParams["svg.fonttype"] = "none"
    mpl.rcParams["axes.formatter.use_locale"] = False
    folder.mkdir(parents=True, exist_ok=True)
    configs = sorted({named(run) for run in runs})
    colours = {config: f"C{number}" for number, config in enumerate(configs)}
    made = {
        "latency": _latency(runs, colours),
        "memory": _memory(runs, colours),
        "throughput": _throughput(runs, colours),
    }
    written = []
    for name, figure in made.items():
        if figure is None:
            continue
        for kind in ("png", "svg"):
            metadata = {"Date": None} if kind == "svg" else None
            figure.savefig(folder / f"{name}.{kind}", dpi=100, metadata=metadata)
        written.append(folder / f"{name}.png")
    return written


def _figure(rows: int, columns: int, width: float, height: float) -> tuple[Figure, list[Axes]]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    return figure, list(axes.flat)


def _latency(runs: Sequence[Run], colours: dict[str, str]) -> Figure | None:
    """Draw each input's cumulative distribution, a line for each configuration."""
    found = latencies(runs)
    if not found:
        return None
    columns = min(_COLUMNS, len(found))
    rows = -(-len(found) // columns)
    figure, axes = _figure(rows, columns, 4 * columns, 3 * rows)
    for one, (title, of_input) in zip(axes, found.items(), strict=False):
        for config, times in sorted(of_input.items()):
            ordered = sorted(times)
            shares = [100 * (number + 1) / len(ordered) for number in range(len(ordered))]
            one.step(ordered, shares, where="post", color=colours[config], label=config)
        one.set_title(title, fontsize=10)
        one.set_xlabel("ms")
        one.set_ylabel("% answered within")
        one.set_ylim(0, 100)
        one.set_xlim(left=0)
        one.grid(alpha=0.3)
    for unused in axes[len(found) :]:
        unused.set_axis_off()
    axes[0].legend(fontsize=8)
    figure.suptitle("Warm latency, one client")
    return figure


def _memory(runs: Sequence[Run], colours: dict[str, str]) -> Figure | None:
    """Draw what the processes held, a line for each run."""
    sampled = [(run, run.one("memory").get("samples", [])) for run in runs]
    sampled = [(run, samples) for run, samples in sampled if samples]
    if not sampled:
        return None
    figure, (axes,) = _figure(1, 1, 8, 4)
    told = set()
    for run, samples in sampled:
        config = named(run)
        axes.plot(
            [sample["second"] for sample in samples],
            [sample["bytes"] / MIB for sample in samples],
            color=colours[config],
            label=None if config in told else config,
        )
        told.add(config)
    axes.set_xlabel("s since it was ready (in process: since the import)")
    axes.set_ylabel("MiB of all its processes")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    axes.set_title("Memory")
    return figure


def _throughput(runs: Sequence[Run], colours: dict[str, str]) -> Figure | None:
    """Draw latency against what was answered under arrivals, p50 and p99, lines for each run."""
    from matplotlib.ticker import FuncFormatter

    found = [(run, _points(run)) for run in runs]
    found = [(run, points) for run, points in found if points]
    if not found:
        return None
    figure, (axes,) = _figure(1, 1, 8, 4)
    told = set()
    for run, points in found:
        config = named(run)
        rates, p50s, p99s = zip(*points, strict=True)
        # One entry of each in the legend, however many runs there are.
        labels = [None, None] if config in told else [f"{config}, p50", f"{config}, p99"]
        told.add(config)
        axes.plot(rates, p50s, "o-", color=colours[config], label=labels[0])
        axes.plot(rates, p99s, "s--", color=colours[config], label=labels[1])
    axes.set_xlabel("answers/s")
    axes.set_ylabel("ms since a request was due")
    axes.set_yscale("log")
    plain = FuncFormatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_major_formatter(plain)
    axes.yaxis.set_minor_formatter(plain)
    axes.tick_params(axis="y", which="minor", labelsize=6)
    axes.grid(alpha=0.3, which="both")
    axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    axes.set_title("Poisson arrivals")
    return figure


def _points(run: Run) -> list[tuple[float, float, float]]:
    """Give answers/s, p50 and p99 of each of a run's rates."""
    points = []
    for line in run.of("arrivals"):
        times = line["milliseconds"]
        if times:
            points.append((answered(line), percentile(times, 0.5), percentile(times, 0.99)))
    return sorted(points)

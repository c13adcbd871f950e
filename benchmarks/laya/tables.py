"""The report's tables, in Markdown, and what of them is not good."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.gpu.reference import Answers, compare
from benchmarks.laya.results import Line, Run, table
from benchmarks.percentiles import percentile

MIB = 1024 * 1024
_ENOUGH = 100
"""Timed requests from which a p99 says something."""


def named(run: Run) -> str:
    """Name a run's configuration in a table or plot, with its device where that is not the CPU."""
    device = str(run.one("meta").get("device", "cpu"))
    return run.config if device == "cpu" else f"{run.config} {device}"


def answered(line: Line) -> float:
    """Give how many a second were answered under arrivals, the time of the last ones included."""
    within, until_the_last = line["answered_per_second"], line["answers_per_second"]
    return float(min(within, until_the_last))


def check_joinable(runs: Sequence[Run]) -> None:
    """Raise `ValueError` where runs of different labels or checkpoints would be put together."""
    for what, found in (
        ("labels", {run.label for run in runs}),
        ("checkpoints", {str(run.one("meta").get("checkpoint", {}).get("sha256")) for run in runs}),
    ):
        if len(found) > 1:
            told = ", ".join(sorted(each[:16] for each in found))
            raise ValueError(f"runs of different {what} are no one report: {told}")


def by_config(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Put runs of equal configuration together, in the order of the configurations' names."""
    found: dict[str, list[Run]] = {}
    for run in sorted(runs, key=lambda run: (named(run), run.id)):
        found.setdefault(named(run), []).append(run)
    return found


def state(run: Run) -> str:
    """Say how a run went."""
    if run.of("failed"):
        return f"failed: {run.one('failed')['reason']}".replace("|", "/").replace("\n", " ")[:200]
    return "whole" if run.ended else "broken off"


def runs_table(runs: Sequence[Run]) -> str:
    """Say where and when each run was, and how it ended."""
    head = [
        "run",
        "of",
        "label",
        "processor",
        "device",
        "checkpoint",
        "power",
        "load",
        "how it went",
    ]
    rows = []
    for run in runs:
        meta, end = run.one("meta"), run.one("end")
        checkpoint = str(meta.get("checkpoint", {}).get("sha256", ""))[:12]
        processor = f"{meta.get('processors', '')} of {meta.get('processor', '')}"
        load = (
            f"{meta.get('load', 0):.2f} to {end['load']:.2f}" if end else f"{meta.get('load', 0)}"
        )
        cells = [run.id, f"{run.program} {run.config}", run.label, processor]
        cells += [str(meta.get("device", "")), checkpoint, str(meta.get("power", "")), load]
        rows.append([*cells, state(run)])
    return table(head, rows, len(head))


def starts_table(runs: Sequence[Run]) -> str:
    """Give each run's start, its first request and its memory."""
    head = ["", "run", "load or ready, s", "first request, ms", "memory after warm, MiB", "highest"]
    rows = []
    for run in runs:
        load = run.one("load")
        ready = load.get("load_s") if load else run.one("ready").get("seconds")
        samples = run.one("memory").get("samples", [])
        warm = [sample["bytes"] for sample in samples if sample["phase"] == "warm"]
        if not samples:
            # A server that ran already: what it says of itself.
            told = run.one("memory").get("worker") or {}
            warm = [told["footprint_bytes"]] if "footprint_bytes" in told else []
        rows.append(
            [
                named(run),
                run.id,
                _number(ready),
                _number(run.one("first").get("ms"), 1),
                _number(warm[-1] / MIB if warm else None, 0),
                _number(max(each["bytes"] for each in samples) / MIB if samples else None, 0),
            ]
        )
    return table(head, rows)


def latencies(runs: Sequence[Run]) -> dict[str, dict[str, list[float]]]:
    """Give warm times in milliseconds, by input's title and configuration, of all its runs."""
    found: dict[str, dict[str, list[float]]] = {}
    for run in runs:
        for line in run.of("latency"):
            of_input = found.setdefault(line["title"], {})
            of_input.setdefault(named(run), []).extend(line["milliseconds"])
    return found


def warm_table(runs: Sequence[Run]) -> str:
    """Give the warm p50 and p99 of each input and configuration."""
    found = latencies(runs)
    configs = sorted({config for of_input in found.values() for config in of_input})
    rows = []
    for title, of_input in found.items():
        cells = []
        for config in configs:
            times = of_input.get(config, [])
            cells.append(_both(times) if times else "")
        rows.append([title, *cells])
    told = f"p50 / p99 ms, one client; a p99 of fewer than {_ENOUGH} requests is not shown"
    return f"{told}\n\n{table(['', *configs], rows)}"


def _both(times: Sequence[float]) -> str:
    p50 = f"{percentile(times, 0.5):.1f}"
    return f"{p50} / {percentile(times, 0.99):.1f}" if len(times) >= _ENOUGH else p50


def arrivals_table(runs: Sequence[Run]) -> str:
    """Give each rate of arrivals: what was answered, how fast, and what went wrong."""
    head = ["", "arrivals/s", "answers/s", "p50 ms", "p99 ms", "requests", "wrong or late"]
    rows = []
    for run in runs:
        for line in run.of("arrivals"):
            times = line["milliseconds"]
            p50, p99 = (percentile(times, share) if times else None for share in (0.5, 0.99))
            wrong = sum(line["errors"].values()) + line["unfinished"]
            cells = [named(run), f"{line['rate']:.1f}", f"{answered(line):.1f}"]
            cells += [_number(p50, 1), _number(p99, 1), str(len(times) + wrong), str(wrong)]
            rows.append(cells)
    return table(head, rows)


def _number(value: float | None, digits: int = 2) -> str:
    return "" if value is None else f"{value:.{digits}f}"


@dataclass
class Judged:
    """A table, and a sentence for each thing in it that is not good."""

    markdown: str
    misses: list[str] = field(default_factory=list)


def gate(runs: Sequence[Run], most: float) -> Judged:
    """Compare the p50 of equal runs: the highest may be so much over the lowest (0.1 is 10 %)."""
    rows, misses = [], []
    for config, equal in by_config(runs).items():
        p50s: dict[str, list[float]] = {}
        for run in equal:
            for line in run.of("latency"):
                if line["milliseconds"]:
                    p50s.setdefault(line["title"], []).append(percentile(line["milliseconds"], 0.5))
        for title, values in p50s.items():
            if len(values) < 2:
                continue
            spread = max(values) / min(values) - 1
            good = spread <= most
            shown = ", ".join(f"{value:.1f}" for value in values)
            rows.append([config, title, shown, f"{spread:.1%}", "yes" if good else "**no**"])
            if not good:
                misses.append(f"{config}, {title}: runs differ by {spread:.1%}, over {most:.0%}")
    if not rows:
        return Judged("No configuration was run twice: nothing says how much runs differ.")
    head = ["", "input", "p50 of each run, ms", "spread", f"within {most:.0%}"]
    told = f"Of {len(rows)} figures {len(misses)} differ by more than {most:.0%}."
    return Judged(f"{table(head, rows)}\n\n{told}", misses)


def parity(runs: Sequence[Run], ref: str, most: float) -> Judged:
    """Compare answers with those of a configuration's first whole run. Raises `ValueError`."""
    right = next(
        (run for run in runs if ref in (run.config, named(run)) and run.of("answers")), None
    )
    if right is None:
        raise ValueError(f"--ref {ref}: no run of it has answers")
    wanted = _answers(right)
    head = ["", "run", "questions", f"largest difference from {ref}", "in", "other best option"]
    head += ["not answered"]
    rows, misses = [], []
    for run in runs:
        if run is right or not run.of("answers"):
            continue
        largest, where, questions, mismatches, refused = 0.0, "", 0, 0, 0
        for name, answers in _answers(run).items():
            if answers is None or wanted.get(name) is None:
                refused += answers is None and wanted.get(name) is not None
                continue
            try:
                found = compare([answers], [wanted[name] or {}])
            except (ValueError, KeyError) as error:
                misses.append(f"{named(run)} {run.id}, {name}: {error}")
                continue
            questions, mismatches = questions + found.questions, mismatches + found.mismatches
            if found.largest > largest:
                largest, where = found.largest, name
        cells = [named(run), run.id, str(questions), f"{largest:.4f}", where, str(mismatches)]
        rows.append([*cells, str(refused)])
        if largest > most or mismatches or refused:
            misses.append(
                f"{named(run)} {run.id}: {largest:.4f} from {ref} ({where}), over {most:g}, or "
                f"{mismatches} other best options, or {refused} not answered"
            )
        if not questions:
            misses.append(f"{named(run)} {run.id}: no answer that {ref} has too")
    return Judged(table(head, rows), misses)


def _answers(run: Run) -> Mapping[str, Answers | None]:
    return {line["input"]: line.get("answers") for line in run.of("answers")}

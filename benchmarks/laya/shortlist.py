"""77 options with and without a shortlist: how often the answer is right, and how long it takes.

    python benchmarks/laya/shortlist.py --run feasibility --keep 5,10,20

Asks a worker which of 77 intents each made-up text of `workload/intents.jsonl` has: once with all
options, once for each `--keep` with `x_shortlist`, in random order within each text. What it says
is of the checkpoint that was asked: the demo is not Laya.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.laya.asking import Client
from benchmarks.laya.inputs import WORKLOAD, Input
from benchmarks.laya.results import Line, table
from benchmarks.laya.session import Session, add_servers, guarded, parser
from benchmarks.percentiles import percentile

_SEED = 20261130
ALL = 0
"""Stands for no shortlist, among the numbers of options that are kept."""


def intents() -> dict[str, list[str]]:
    """Give the options, each with the texts that it is right for."""
    lines = (WORKLOAD / "intents.jsonl").read_text(encoding="utf-8").splitlines()
    return {line["intent"]: line["texts"] for line in map(json.loads, lines)}


def body(text: str, options: Sequence[str], keep: int) -> dict[str, Any]:
    """Make a request about a text; `keep` is how many options are kept, `ALL` for all of them."""
    question: dict[str, Any] = {
        "type": "choice",
        "instructions": "What does the customer want?",
        "criteria": dict.fromkeys(options),
    }
    if keep != ALL:
        question["x_shortlist"] = keep
    return {"state": text, "questions": {"intent": question}}


def measure(run: Session) -> None:
    """Ask about all texts in all ways, and print the table."""
    found = intents()
    chance = random.Random(_SEED)
    texts = [(text, intent) for intent, of_it in found.items() for text in of_it]
    chance.shuffle(texts)
    texts = texts[: run.options.count]
    ways = [ALL, *run.options.keep]
    client = Client(run.starter().worker([], "the worker"))
    for keep in ways:
        # The first embeds all options; the next remember them.
        for _ in range(run.options.warmup):
            client.ask(Input("warm", "warm", body("Hello", list(found), keep)))
    planned = [(text, intent, keep) for text, intent in texts for keep in _shuffled(ways, chance)]
    lines: list[Line] = []
    for text, intent, keep in run.bars.over("texts", planned, len(planned)):
        seconds, answer = client.ask(Input("intent", "intent", body(text, list(found), keep)))
        told = answer["answers"]["intent"]
        line = {
            "text": text,
            "intent": intent,
            "keep": keep,
            "choice": told["choice"],
            "considered": told.get("x_shortlist", {}).get("considered"),
            "probability": told["probabilities"][intent],
            "lost": told.get("x_truncated", {}).get("options", 0),
            "tokens": answer["usage"]["input_tokens"],
            "ms": seconds * 1000,
        }
        run.results.record("asked", **line)
        lines.append(line)
    client.close()
    print(summary(lines))


def _shuffled(ways: Sequence[int], chance: random.Random) -> list[int]:
    return chance.sample(list(ways), len(ways))


def summary(lines: Sequence[Line]) -> str:
    """Draw the table: for each number of options kept, accuracy, time and what was cut."""
    head = ["options asked", "texts", "accuracy", "give or take", "right one among them"]
    head += ["tokens", "tokens of options cut", "p50 ms", "p99 ms"]
    rows = []
    for keep in sorted({line["keep"] for line in lines}, key=lambda keep: keep or math.inf):
        of_it = [line for line in lines if line["keep"] == keep]
        count = len(of_it)
        right = sum(line["choice"] == line["intent"] for line in of_it) / count
        among = sum(
            line["considered"] is None or line["intent"] in line["considered"] for line in of_it
        )
        times = [line["ms"] for line in of_it]
        cells = ["all" if keep == ALL else str(keep), str(count), f"{right:.3f}"]
        cells += [f"{1.96 * math.sqrt(right * (1 - right) / count):.3f}", f"{among / count:.3f}"]
        for what in ("tokens", "lost"):
            cells.append(f"{percentile([line[what] for line in of_it], 0.5):.0f}")
        cells += [f"{percentile(times, share):.1f}" for share in (0.5, 0.99)]
        rows.append(cells)
    return table(head, rows)


def _kept(text: str) -> list[int]:
    keep = [int(each) for each in text.split(",")]
    if min(keep) < 2:
        raise argparse.ArgumentTypeError("a shortlist keeps 2 options or more")
    return keep


def arguments() -> argparse.ArgumentParser:
    """Give its flags."""
    made = parser(__doc__)
    made.add_argument("--keep", type=_kept, default=[5, 10, 20], help="options kept: N,N,…")
    made.add_argument("--count", type=int, default=154, help="of the texts, chosen by chance")
    made.add_argument("--warmup", type=int, default=5, help="requests of each way before")
    add_servers(made)
    return made


def main() -> int:
    """Read the command line and measure; the exit code."""
    options = arguments().parse_args()
    return guarded("shortlist", "", options, measure)


if __name__ == "__main__":
    sys.exit(main())

"""Measures the checkpoint on heldout.jsonl through laya.Agent, on the CPU.

python recipe/demo/evaluate.py            prints the table
python recipe/demo/evaluate.py --write    writes it to metrics.json and README.md as well
"""

from __future__ import annotations

import argparse
import hashlib
import json
from importlib.metadata import version
from pathlib import Path

import torch
from laya.agent import Agent

from phrasebook import frozen
from phrasebook.measure import by_type


def digest(path: Path) -> str:
    """The file's SHA-256."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def into_readme(table: dict[str, dict[str, float | int]]) -> None:
    """Puts the results between their marks in README.md."""
    lines = ["| | items | accuracy | ece | brier |", "| --- | --- | --- | --- | --- |"]
    for kind, row in table.items():
        cells = f"{row['accuracy']:.3f} | {row['ece']:.3f} | {row['brier']:.3f}"
        lines.append(f"| {kind} | {row['items']} | {cells} |")
    path = frozen.HERE / "README.md"
    head, mark, rest = path.read_text(encoding="utf-8").partition("<!-- results -->\n")
    _, end, tail = rest.partition("<!-- end of results -->\n")
    path.write_text(head + mark + "\n".join(lines) + "\n" + end + tail, encoding="utf-8")


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description="measures the demo checkpoint")
    parser.add_argument("--checkpoint", type=Path, default=frozen.CHECKPOINT)
    parser.add_argument("--write", action="store_true", help="write metrics.json")
    args = parser.parse_args()
    torch.set_num_threads(1)
    agent = Agent(str(args.checkpoint), device="cpu")
    table = by_type([frozen.answer(agent, item) for item in frozen.read()])
    print(f"{'':8} {'items':>6} {'accuracy':>9} {'ece':>7} {'brier':>7}")
    for kind, row in table.items():
        cells = f"{row['items']:6} {row['accuracy']:9.4f} {row['ece']:7.4f} {row['brier']:7.4f}"
        print(f"{kind:8} {cells}")
    if args.write:
        metrics = {
            "command": "python recipe/demo/evaluate.py --write",
            "device": "cpu, float32, one thread",
            "versions": {name: version(name) for name in ("laya", "torch", "transformers")},
            "sha256": {
                "heldout.jsonl": digest(frozen.HELDOUT),
                "model.safetensors": digest(args.checkpoint / "model.safetensors"),
            },
            "results": table,
        }
        frozen.METRICS.write_text(json.dumps(metrics, indent=2) + "\n", encoding="utf-8")
        into_readme(table)


if __name__ == "__main__":
    main()

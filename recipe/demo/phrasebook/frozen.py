"""The held-out file, and the answers that a Laya agent gives to it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from laya.agent import Agent

from .item import Item
from .measure import Answer

HERE = Path(__file__).resolve().parent.parent
HELDOUT = HERE / "heldout.jsonl"
METRICS = HERE / "metrics.json"
CHECKPOINT = HERE / "checkpoint"


def to_line(item: Item) -> str:
    """One line of the held-out file."""
    record = {
        "domain": item.domain,
        "state": item.state,
        "question": item.question,
        "label": item.label,
    }
    return json.dumps(record, ensure_ascii=False)


def read(path: Path = HELDOUT) -> list[Item]:
    """The items of a held-out file."""
    records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [
        Item(record["domain"], record["state"], record["question"], record["label"])
        for record in records
    ]


def answer(agent: Agent, item: Item) -> Answer:
    """The agent's answer to one item, asked as a client would ask it."""
    given: dict[str, Any] = agent.system_one(item.state, {"q": item.question})["answers"]["q"]
    if item.kind == "noul":
        probabilities = [1.0 - given["noul"], given["noul"]]
    else:
        probabilities = list(given["probabilities"].values())
    return Answer(item.kind, np.array(probabilities), item.label)

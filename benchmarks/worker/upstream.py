"""Upstream's own server, `laya.serve`, on one checkpoint folder.

    python benchmarks/worker/upstream.py FOLDER PORT [DEVICE]

`laya-serve` finds its checkpoints by name on the hub; this gives its application one from a
folder, on the CPU unless a device is named, and leaves the rest as it is.
"""

from __future__ import annotations

import sys
from typing import Any

import uvicorn
from laya.agent import Agent
from laya.serve import create_app


class OneCheckpoint:
    """What `laya.serve` asks of its router."""

    def __init__(self, folder: str, device: str) -> None:
        self.agent = Agent(folder, device=device)
        self.loaded = [folder]

    def predict(self, state: Any, questions: Any, model: str | None = None) -> dict[str, Any]:
        """Answers with the one checkpoint, whatever the name."""
        del model
        answer: dict[str, Any] = self.agent.system_one(state, questions)
        return answer


if __name__ == "__main__":
    folder, port, *device = sys.argv[1:]
    router = OneCheckpoint(folder, *(device or ["cpu"]))
    # As upstream's `main` starts it.
    uvicorn.run(create_app(router), host="127.0.0.1", port=int(port), log_level="info")

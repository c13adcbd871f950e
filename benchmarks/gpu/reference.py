"""What laya itself answers in fp32 on this machine's CPU, from a process that can be held still.

python benchmarks/gpu/reference.py FOLDER REQUESTS.json ANSWERS.json
"""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CLEAR = 0.04
"""The reference's margin from which another best option is a mismatch and no tie."""

Answers = Mapping[str, Mapping[str, Any]]


class Reference:
    """Laya's answers to some requests, computed beside what is not timed."""

    def __init__(self, folder: Path, requests: Sequence[Mapping[str, Any]], scratch: Path) -> None:
        """Start computing."""
        asked, self._answers = scratch / "requests.json", scratch / "answers.json"
        asked.write_text(json.dumps(list(requests)))
        self._log = scratch / "reference.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, __file__, folder, asked, self._answers],
                env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    @contextmanager
    def still(self) -> Iterator[None]:
        """Hold it still, so that it takes no processor from what is timed."""
        running = self._process.poll() is None
        if running:
            self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            if running:
                self._process.send_signal(signal.SIGCONT)

    def answers(self, seconds: float) -> list[Answers]:
        """Wait for the answers, one mapping of questions for each request.

        Raises `RuntimeError` if it failed, and `subprocess.TimeoutExpired`.
        """
        if self._process.wait(timeout=seconds) != 0:
            end = self._log.read_text(errors="replace")[-500:]
            raise RuntimeError(f"laya on the CPU failed: {end}")
        made: list[Answers] = json.loads(self._answers.read_text())
        return made

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()


@dataclass
class Difference:
    """Between two servers' answers to the same requests."""

    largest: float = 0.0
    """Of any probability."""
    mismatches: int = 0
    """Questions with another best option, where the reference's is clear."""
    where: str = ""
    """The question of the largest difference."""
    questions: int = 0


def compare(given: Sequence[Answers], right: Sequence[Answers]) -> Difference:
    """Compare answers; raises `ValueError` for ones that cannot be compared."""
    found = Difference()
    for number, (mine, theirs) in enumerate(zip(given, right, strict=True)):
        if set(mine) != set(theirs):
            raise ValueError(f"request {number}: other questions are answered")
        for name, answer in theirs.items():
            here = f"request {number}, question {name}"
            ours, wanted = probabilities(mine[name]), probabilities(answer)
            if ours.keys() != wanted.keys():
                raise ValueError(f"{here}: other options are answered")
            if not all(map(math.isfinite, ours.values())):
                raise ValueError(f"{here}: a number that is not finite")
            found.questions += 1
            largest = max(abs(ours[option] - wanted[option]) for option in wanted)
            if largest > found.largest:
                found.largest, found.where = largest, here
            best, second, *_ = sorted(wanted.values(), reverse=True)
            if best - second > CLEAR and _best(ours) != _best(wanted):
                found.mismatches += 1
    return found


def probabilities(answer: Mapping[str, Any]) -> dict[str, float]:
    """Give an answer's options with their probabilities."""
    if answer["type"] == "noul":
        return {"true": answer["noul"], "false": 1 - answer["noul"]}
    return dict(answer["probabilities"])


def _best(options: Mapping[str, float]) -> str:
    return max(options, key=lambda option: options[option])


def main() -> None:
    """Compute the answers and write them."""
    from laya.agent import Agent

    folder, asked, answers = map(Path, sys.argv[1:])
    agent = Agent(str(folder), device="cpu")
    made = [
        agent.system_one(request["state"], request["questions"])["answers"]
        for request in json.loads(asked.read_text())
    ]
    answers.write_text(json.dumps(made))


if __name__ == "__main__":
    main()

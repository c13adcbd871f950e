"""What is asked: the fixed files of `workload/`, and a person's own requests.

A line of `timed.jsonl` and `answers.jsonl` is `{"name", "title", "tokens", "body"}`, of which the
last two title and tokens may be missing; a line of one's own file is a request's body, or has it
under `body`. Tokens are counted by the demo checkpoint's tokenizer; another one counts others.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from benchmarks.gpu.connection import post
from benchmarks.gpu.workload import Item

WORKLOAD: Final = Path(__file__).resolve().parent / "workload"


@dataclass(frozen=True)
class Input:
    """One request of a fixed file."""

    name: str
    title: str
    body: dict[str, Any] = field(hash=False)
    tokens: int | None = None
    """Of all its rows, by the demo checkpoint's tokenizer; none where nobody counted."""

    def item(self, path: str = "/v1/systemone", host: str = "bench", tokens: int = 0) -> Item:
        """Give it as the load generator sends it; `tokens` are what answers must say, 0 any."""
        questions = self.body["questions"]
        # Every question's id is in the answer; the first shows whose answer it is.
        mark = json.dumps(next(iter(questions))).encode()
        return Item(post(json.dumps(self.body).encode(), path, host), mark, 1, tokens)


def timed(only: Sequence[str] = ()) -> list[Input]:
    """Give the six inputs that are timed, or those of these names. Raises `ValueError`."""
    inputs = read(WORKLOAD / "timed.jsonl")
    unknown = set(only) - {each.name for each in inputs}
    if unknown:
        names = ", ".join(each.name for each in inputs)
        raise ValueError(f"no input {', '.join(sorted(unknown))}; there are {names}")
    return [each for each in inputs if not only or each.name in only]


def compared() -> list[Input]:
    """Give the inputs whose answers are compared: the timed ones, and those that are not timed."""
    return [*read(WORKLOAD / "timed.jsonl"), *read(WORKLOAD / "answers.jsonl")]


def read(path: Path) -> list[Input]:
    """Read a file of requests. Raises `ValueError` naming the line that is not one."""
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            found.append(_input(json.loads(line), f"{path.stem}-{number}"))
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"{path}, line {number}: no request ({error})") from None
    if not found:
        raise ValueError(f"{path}: no request in it")
    return found


def _input(line: Any, name: str) -> Input:
    if not isinstance(line, dict):
        raise TypeError("not an object")
    body = line.get("body", line)
    if not isinstance(body, dict) or not isinstance(body.get("questions"), dict):
        raise TypeError("no object of questions")
    if not body["questions"]:
        raise ValueError("no question")
    named = str(line.get("name", name)) if "body" in line else name
    return Input(named, str(line.get("title", named)), body, line.get("tokens"))

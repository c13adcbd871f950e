"""Generated requests, and how long the worker's rows of them are: the frontend counts the same.

.venv/bin/python -m tests.harness.token_rows > crates/tokens/tests/rows.jsonl
"""

import itertools
import json
from collections.abc import Iterator
from typing import Any

from laya.common import render_options, serialize_state

from omni_jev_worker.rows import RowBuilder, Specials, Text
from omni_jev_worker.tokens import reading_of
from tests.harness.generated import requests
from tests.harness.omni_jev import DEMO_CHECKPOINT
from tests.harness.reference import make_agent

_COUNT = 120
_SEED = 7
_MORE: tuple[dict[str, Any], ...] = (
    {"state": {"n": [1e-5, 0.1, -2, 1e3, 2.50]}, "questions": {"q": {"type": "noul"}}},
    {
        "state": "x",
        "questions": {"q": {"type": "choice", "instructions": "", "criteria": ["b", "a", "ab"]}},
    },
    {
        "state": "one two three",
        "questions": {
            "q": {
                "type": "choice",
                "instructions": "Which? " * 60,
                "criteria": {f"option {number}": "with words " * number for number in range(12)},
            }
        },
    },
)


def rows() -> Iterator[dict[str, Any]]:
    """Give each request's body as it is sent, and the tokens of its longest row."""
    agent = make_agent(DEMO_CHECKPOINT)
    tokenizer = agent.tok
    builder = RowBuilder(
        reading_of(tokenizer),
        Specials(
            tokenizer.cls_token_id,
            tokenizer.sep_token_id,
            tokenizer.mask_token_id,
            tokenizer.mask_token,
        ),
        window=int(agent.cfg["max_len"]),
        head=int(agent.cfg["head_max_len"]),
    )
    for asked in itertools.chain(requests(_COUNT, _SEED), _MORE):
        yield {"body": json.dumps(asked), "longest": _longest(agent, builder, asked)}


def _longest(agent: Any, builder: RowBuilder, asked: dict[str, Any]) -> int:
    state = builder.state(serialize_state(asked["state"]))
    longest = 0
    for question in asked["questions"].values():
        form = agent._to_internal({"instructions": "", **question})
        text = Text(form["t"], str(form["ins"]), render_options(form))
        laid, _ = builder.rows(text, state, newest_last=isinstance(asked["state"], list))
        longest = max(longest, *(len(row.ids) for row in laid))
    return longest


if __name__ == "__main__":
    for row in rows():
        print(json.dumps(row))

"""The lengths that the frontend's own count is held to (`cargo test -p omni-jev-tokens`)."""

import json

from tests.harness.omni_jev import ROOT
from tests.harness.token_rows import rows


def test_the_kept_lengths_are_those_of_the_workers_rows() -> None:
    kept = ROOT / "crates" / "tokens" / "tests" / "rows.jsonl"
    lines = [json.loads(line) for line in kept.read_text(encoding="utf-8").splitlines()]
    assert lines == list(rows()), "python -m tests.harness.token_rows makes them anew"

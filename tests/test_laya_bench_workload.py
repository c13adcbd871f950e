"""The fixed inputs of the benchmark of the whole system."""

import json
from pathlib import Path

import pytest

from benchmarks.gpu.workload import Workload
from benchmarks.laya import inputs
from tests.harness.omni_jev import DEMO_CHECKPOINT


def test_there_are_six_timed_inputs_of_the_lengths_that_their_names_say() -> None:
    workload = Workload(DEMO_CHECKPOINT)
    timed = {one.name: one for one in inputs.timed()}
    counted = {
        name: [
            workload.fixed(question) + workload.tokens(one.body["state"])
            for question in one.body["questions"].values()
        ]
        for name, one in timed.items()
    }
    assert counted["one-68"] == [68]
    assert counted["one-198"] == [198]
    assert counted["one-484"] == [484]
    assert len(counted["three"]) == 3
    assert len(counted["six"]) == len(counted["six-short"]) == 6
    assert max(counted["six-short"]) < min(counted["six"]) / 2
    assert {name: sum(rows) for name, rows in counted.items()} == {
        name: one.tokens for name, one in timed.items()
    }


def test_compared_inputs_are_of_all_types_and_none_is_there_twice() -> None:
    compared = inputs.compared()
    types = {q["type"] for one in compared for q in one.body["questions"].values()}
    assert types == {"noul", "choice", "score"}
    assert len({one.name for one in compared}) == len(compared) >= 25


def test_ones_own_requests_are_read_as_bodies_or_with_a_name(tmp_path: Path) -> None:
    body = {"state": "Hi", "questions": {"q": {"type": "noul", "instructions": "Is it?"}}}
    file = tmp_path / "requests.jsonl"
    file.write_text(f"{json.dumps(body)}\n\n{json.dumps({'name': 'mine', 'body': body})}\n")
    first, second = inputs.read(file)
    assert (first.name, second.name) == ("requests-1", "mine")
    assert first.body == second.body == body
    assert inputs.read(inputs.WORKLOAD / "requests.example.jsonl")


@pytest.mark.parametrize(
    "line", ["{", "[]", "{}", '{"questions": {}}', '{"body": {"questions": []}}', '"text"']
)
def test_a_line_that_is_no_request_is_named(tmp_path: Path, line: str) -> None:
    file = tmp_path / "requests.jsonl"
    good = '{"state": "Hi", "questions": {"q": {}}}'
    file.write_text(f"{good}\n{line}\n")
    with pytest.raises(ValueError, match=r"requests\.jsonl, line 2: no request"):
        inputs.read(file)


def test_an_input_that_is_not_there_is_refused_with_those_that_are() -> None:
    assert [one.name for one in inputs.timed(["six"])] == ["six"]
    with pytest.raises(ValueError, match="no input seven; there are one-68, "):
        inputs.timed(["seven"])

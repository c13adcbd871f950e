"""What makes a soak of the worker fail."""

import json

import pytest

from benchmarks.worker.soak import Asked
from benchmarks.worker.soak_account import MIB, Account, Sample


def account(*footprints: int, releases: int = 3) -> Account:
    """An account of ten minutes with one right answer, a footprint (MiB) for each minute."""
    made = Account(minutes=10)
    made.answer_ms.append(20.0)
    made.health_ms.append(2.0)
    for minute, footprint in enumerate(footprints):
        for second in range(60):
            moment = 60 * minute + second
            made.samples.append(Sample(moment, footprint * MIB, releases, 1, 0, 1, 1))
    return made


LEVEL = (100, 200, 300, 300, 300, 300, 310, 290, 300, 305)


def test_a_run_whose_footprint_settles_is_good() -> None:
    run = account(*LEVEL)
    assert run.misses() == []
    assert "| highest against the first | 1.033 (bar 1.1) |" in run.table()


def test_a_footprint_that_grows_by_more_than_a_tenth_after_five_minutes_fails() -> None:
    run = account(*LEVEL[:-1], 331)
    assert run.misses() == ["the footprint grew to 1.103 of what it was after settling"]


def test_a_single_wrong_answer_fails() -> None:
    run = account(*LEVEL)
    run.faults["a wrong answer"] += 1
    assert run.misses() == ["1 times: a wrong answer"]
    assert list(run.records())[-1]["misses"] == run.misses()


def test_a_run_without_a_release_says_nothing_about_releases_and_fails() -> None:
    assert len(account(*LEVEL, releases=0).misses()) == 1


@pytest.mark.parametrize(
    ("answers", "fault"),
    [
        ({"q-7": {"noul": 0.5009}}, None),
        ({"q-7": {"noul": 0.502}}, "a wrong answer"),
        ({"q-7": {"noul": 0.5, "x_truncated": {}}}, "a wrong answer"),
        ({"q-8": {"noul": 0.5}}, "an answer to other questions"),
    ],
)
def test_an_answer_is_right_if_it_is_the_one_that_the_request_got_alone(
    answers: dict[str, object], fault: str | None
) -> None:
    asked = Asked({"state": "s", "questions": {"q": {"type": "noul"}}})
    asked.right = {"q": {"noul": 0.5}}
    assert asked.fault(json.dumps({"answers": answers}).encode(), "-7") == fault

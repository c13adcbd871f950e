"""The measurement of a shortlist: its set, what it tells, and a run with few texts."""

from pathlib import Path
from typing import Any

from benchmarks.laya import shortlist
from tests.harness.bench import lines, program


def test_the_set_has_77_intents_with_texts_of_their_own() -> None:
    found = shortlist.intents()
    assert len(found) == 77
    texts = [text for of_it in found.values() for text in of_it]
    assert len(set(texts)) == len(texts) == 154
    # A text that names its intent would ask for nothing.
    assert [text for intent, of_it in found.items() for text in of_it if text == intent] == []


def asked(keep: int, choice: str, considered: list[str] | None, ms: float) -> dict[str, Any]:
    line = {"keep": keep, "choice": choice, "intent": "a", "considered": considered, "ms": ms}
    return {**line, "tokens": 10 * (keep or 9), "lost": 0 if keep else 7}


def test_what_is_right_and_what_was_among_the_considered_is_told_of_each_way() -> None:
    told = shortlist.summary(
        [
            asked(2, "a", ["a", "b"], 3.0),
            asked(2, "b", ["b", "a"], 5.0),
            asked(2, "b", ["b", "c"], 4.0),
            asked(2, "b", ["b", "c"], 4.0),
            asked(shortlist.ALL, "a", None, 9.0),
        ]
    )
    assert "| 2 | 4 | 0.250 | 0.424 | 0.500 | 20 | 0 | 4.0 | 5.0 |" in told
    # All of them come last, and the right one is among them.
    assert told.endswith("| all | 1 | 1.000 | 0.000 | 1.000 | 90 | 7 | 9.0 | 9.0 |")


def test_every_text_is_asked_in_every_way(tmp_path: Path) -> None:
    done = program("shortlist", "--count", "2", "--keep", "3,5", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    found = [line for line in lines(tmp_path, "shortlist") if line["kind"] == "asked"]
    assert sorted(line["keep"] for line in found) == [0, 0, 3, 3, 5, 5]
    for line in found:
        if line["keep"]:
            assert len(line["considered"]) == line["keep"]
            assert line["choice"] in line["considered"]
    (file,) = tmp_path.glob("*.jsonl")
    assert shortlist.summary(found) in program("again", str(file)).stdout


def test_a_shortlist_of_one_is_refused(tmp_path: Path) -> None:
    done = program("shortlist", "--keep", "1,5", "--out", str(tmp_path))
    assert done.returncode == 2
    assert "2 options or more" in done.stderr

"""The page of claims: what pages claim, files show, and nothing measured is left out of it."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.percentiles import percentile
from tests.harness import claims
from tests.harness.claims import BadClaimError, Claim
from tests.harness.omni_jev import ROOT
from tests.harness.page_commands import assert_it_exists

ROWS = claims.claims()
COMMANDS = sorted({command for row in ROWS for command in row.commands})


@pytest.mark.parametrize("claim", ROWS, ids=lambda claim: claim.name)
def test_a_page_says_what_is_claimed_and_the_file_has_its_figures(claim: Claim) -> None:
    said = claims.said_by(claim)
    assert [file for file in claim.files if not (ROOT / file).is_file()] == []
    assert claim.environment
    if claim.files:
        lines = [line for file in claim.files for line in claims.results(file)]
        assert [each for each in said if not claims.is_shown(each, lines)] == []


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_is_a_program_that_there_is_with_flags_that_it_has(command: str) -> None:
    assert_it_exists(command)


def test_each_claim_has_a_command_or_says_that_the_page_tells_the_way() -> None:
    text = (ROOT / claims.PAGE).read_text()
    assert len(ROWS) > 50
    assert text.count("| on the page |") == len([row for row in ROWS if not row.commands])


@pytest.mark.parametrize("page", claims.pages())
def test_every_measured_figure_of_a_page_is_claimed(page: str) -> None:
    left_out = [
        f"{heading}: {line}"
        for heading, line in claims.measured_lines(page)
        if not claims.is_claimed(page, heading, line, ROWS)
    ]
    assert left_out == []


def test_what_is_listed_as_no_claim_is_still_there() -> None:
    for each in claims.no_claims():
        text = claims.plain((ROOT / each.page).read_text())
        assert each.quote in (claims.sections(each.page) if each.whole else text), each
        assert claims.plain(each.quote) == each.quote


GPU = "benchmarks/gpu/results-published/h200-2026-11-30.md"
PAIRS = "benchmarks/laya/results-published/two-cores/paired_feasibility.jsonl"


@pytest.mark.parametrize(
    ("file", "said", "shown"),
    [
        (GPU, "512 tokens, 4.39 ms for 4.0", True),
        (GPU, "512 tokens, 4.38 ms for 4.0", False),
        (GPU, "512 tokens, 4.4 ms", True),
        (GPU, "4.39 ms at 512 tokens", False),  # in that order no line has them
        (GPU, "36 and 1,768 answers/s", True),
        (GPU, "36 and 1,769 answers/s", False),
        (PAIRS, "1 question, 68 tokens: 25.15 and 19.26 ms, 0.78 (0.68 to 0.86)", True),
        (PAIRS, "1 question, 68 tokens: 25.15 and 19.26 ms, 0.77 (0.68 to 0.86)", False),
        ("recipe/demo/metrics.json", "620 items: 0.903", True),
        ("recipe/demo/metrics.json", "620 items: 0.904", False),
    ],
)
def test_a_planted_wrong_figure_is_found(file: str, said: str, *, shown: bool) -> None:
    assert claims.is_shown(said, claims.results(file)) == shown


def raw_lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


WITH_TABLES = [
    file
    for file in sorted((ROOT / "benchmarks" / "gpu" / "results-published").glob("*.jsonl"))
    if raw_lines(file)[-1].get("stage") == "table"
]


@pytest.mark.parametrize("file", WITH_TABLES, ids=lambda file: file.stem)
def test_the_published_table_of_a_gpu_is_that_of_its_raw_times(file: Path) -> None:
    lines = raw_lines(file)
    drawn = claims.results(str(file.relative_to(ROOT)))
    assert drawn == file.with_suffix(".md").read_text().splitlines()
    table = lines[-1]
    compared = 0
    for side, named in (("upstream", "upstream"), ("omni-jev", "ours")):
        for line in lines:
            times = line.get("milliseconds") or []
            p50 = table[named].get(f"{line['stage']}.p50")
            if line["side"] != side or not times or not isinstance(p50, float):
                continue
            # The raw times are rounded to a tenth of a microsecond.
            assert p50 == pytest.approx(percentile(times, 0.5), abs=1e-3)
            spread = table[named].get(f"{line['stage']}.spread")
            if spread is not None:
                ratio = percentile(times, 0.99) / percentile(times, 0.5)
                assert spread == pytest.approx(ratio, abs=1e-3)
            compared += 1
    assert compared >= 5


def row(said: str, file: str = "not published", command: str = "`du -sh .venv`") -> str:
    return f"## [README.md](../README.md)\n\n| {said} | {file} | {command} | any |\n"


def test_a_claim_that_its_page_does_not_make_is_found() -> None:
    (planted,) = claims.claims(row("“1.10 of its requests/s at 1.02 of its CPU a request”"))
    with pytest.raises(BadClaimError, match="does not say"):
        claims.said_by(planted)
    (planted,) = claims.claims(row("tables of “No such heading”"))
    with pytest.raises(BadClaimError, match="no table"):
        claims.said_by(planted)


@pytest.mark.parametrize(
    ("said", "file", "wrong"),
    [("no marks", "not published", "curly"), ("“6 GB”", "somewhere", "neither a link")],
)
def test_a_row_that_says_too_little_is_found(said: str, file: str, wrong: str) -> None:
    with pytest.raises(BadClaimError, match=wrong):
        claims.claims(row(said, file))


def test_a_measured_figure_that_nobody_claims_is_found() -> None:
    line = "It answers in 1.23 ms and takes 4,567 requests/s."
    assert claims.is_claimed("README.md", "omni-jev", line, ROWS) is False
    assert claims.is_claimed("README.md", "omni-jev", "(6 GB on disk)", ROWS) is True


@pytest.mark.parametrize(
    "command",
    [
        "cargo xtask bench backend",
        "cargo xtask soak --sed 1",
        "cargo xtask bench laya nothing",
        ".venv/bin/python benchmarks/laya/paired.py --c C3",
        ".venv/bin/python benchmarks/laya/pairing.py",
        ".venv/bin/python -m benchmarks.worker.request_path --no-flag-of-it",
        ".venv/bin/python -m omni_jev_worker --no-such-flag",
        "pytest tests/test_nothing.py",
        "wget something",
    ],
)
def test_a_command_that_there_is_not_is_found(command: str) -> None:
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        assert_it_exists(command)

"""The page of claims (`docs/claims.md`), read, and looked up: pages say it, files show it.

A row of the page is a claim, its file of results, its command and where that ran, under a heading
that links the page which makes the claim. A claim is a quotation in curly marks, or all tables of a
section: ``tables of “Heading”``. Under the heading `NO_CLAIM` stand figures that nobody measured.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.gpu.table import Table
from benchmarks.laya.again import tables_of
from benchmarks.laya.results import read
from benchmarks.worker import against_upstream, refusals, threads
from tests.harness.omni_jev import ROOT

PAGE = "docs/claims.md"
NO_CLAIM = "Figures that are no claims"
UNPUBLISHED = "not published"

_ROW = re.compile(r"^\| (.+) \| (.+) \| (.+) \| (.+) \|$")
_LINK = re.compile(r"!?\[([^\]]*)\]\(([^)]*)\)")
_QUOTE = re.compile("“([^”]*)”")
_FIGURE = re.compile(r"(?<![\w.,])[-+]?\d+(?:,\d{3})*(?:\.\d+)?(?!\.\d)(?!\d)")
_UNIT = r"(?:[mµ]?s|[KMG]i?B|%|answers/s|requests/s|TB/s|TFLOP/s|GFLOP|times|minutes|hours?)"
_MEASURED = re.compile(rf"(?<![\w.])\d[\d.,]*(?: to [\d.,]+)? ?{_UNIT}(?![\w/])")
_FENCE = re.compile(r"^(`{3,}).*?^\1$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Claim:
    """One row."""

    page: str
    quote: str
    """What the page says; a heading where it is all `tables` under it."""
    tables: bool
    files: tuple[str, ...]
    """The published results, by the path in the repository; empty where there are none."""
    commands: tuple[str, ...]
    environment: str

    @property
    def name(self) -> str:
        return f"{self.page}: {self.quote[:60]}"


class BadClaimError(ValueError):
    """A row that cannot be read."""


def claims(text: str | None = None) -> list[Claim]:
    """Read the rows of the page, or of another text of its form. Raises `BadClaimError`."""
    page = None
    found = []
    for line in (text or (ROOT / PAGE).read_text()).splitlines():
        if line.startswith("## "):
            link = _LINK.search(line)
            page = _in_repository(link[2]) if link else None
        row = _ROW.match(line)
        if page is None or row is None or row[1] == "claim" or set(row[1]) <= {"-", " ", ":"}:
            continue
        found.append(_claim(page, *row.groups()))
    return found


def _claim(page: str, said: str, file: str, command: str, environment: str) -> Claim:
    quote, links = _QUOTE.search(said), _LINK.findall(file)
    if quote is None:
        raise BadClaimError(f"{page}: no quotation in “curly marks”: {said}")
    if not links and not file.startswith(UNPUBLISHED):
        raise BadClaimError(f"{page}: neither a link to a file nor {UNPUBLISHED!r}: {file}")
    return Claim(
        page,
        quote[1],
        said.startswith("tables of "),
        tuple(_in_repository(link) for _, link in links),
        tuple(re.findall("`([^`]+)`", command)),
        environment,
    )


def _in_repository(link: str) -> str:
    return str(((ROOT / PAGE).parent / link.partition("#")[0]).resolve().relative_to(ROOT))


@dataclass(frozen=True)
class NoClaim:
    """What a page says and nobody measured: a quotation, or all of a section."""

    page: str
    quote: str
    whole: bool


def no_claims() -> list[NoClaim]:
    """Read what is listed as no claim."""
    part = (ROOT / PAGE).read_text().partition(f"## {NO_CLAIM}\n")[2]
    found = []
    for line in part.splitlines():
        if line.startswith("- ") and (link := _LINK.search(line)):
            page = _in_repository(link[2])
            for whole, quote in re.findall("(all of )?“([^”]*)”", line):
                found.append(NoClaim(page, quote, bool(whole)))
    return found


def plain(markdown: str) -> str:
    """Take a text's marks away, and make each run of white space one space."""
    bare = _LINK.sub(r"\1", markdown).replace("**", "").replace("`", "")
    return re.sub(r"\s+", " ", bare)


def figures(text: str) -> list[str]:
    """Give the numbers of a text, without the marks of thousands; no part of a word is one."""
    return [figure.replace(",", "").lstrip("+") for figure in _FIGURE.findall(plain(text))]


def sections(page: str) -> dict[str, list[str]]:
    """Give a page's lines by the heading over them; fenced and indented ones are left out."""
    found: dict[str, list[str]] = {"": []}
    heading = ""
    for line in _FENCE.sub("", (ROOT / page).read_text()).splitlines():
        if line.startswith("#"):
            heading = plain(line.lstrip("# "))
            found.setdefault(heading, [])
        elif not line.startswith("    "):
            found[heading].append(line)
    return found


def table_rows(lines: Sequence[str]) -> list[str]:
    """Give the rows of tables that have figures, without their heads."""
    rows = []
    for at, line in enumerate(lines):
        head = at + 1 < len(lines) and re.match(r"^\|[ :-]+\|", lines[at + 1])
        if line.startswith("|") and not head and figures(line):
            rows.append(line)
    return rows


def said_by(claim: Claim) -> list[str]:
    """Give what the page says of a claim: its quotation, or the rows of its tables.

    Raises:
        BadClaimError: The page does not say it.
    """
    if claim.tables:
        rows = table_rows(sections(claim.page).get(claim.quote, []))
        if not rows:
            raise BadClaimError(f"{claim.page} has no table with figures under “{claim.quote}”")
        return rows
    if plain(claim.quote) not in plain((ROOT / claim.page).read_text()):
        raise BadClaimError(f"{claim.page} does not say “{claim.quote}”")
    return [claim.quote]


def results(file: str) -> list[str]:
    """Give a file's results as lines: of a table, of what its program prints of it, of objects."""
    path = ROOT / file
    if path.suffix == ".jsonl" and path.is_relative_to(ROOT / "benchmarks" / "laya"):
        return tables_of(read([path])).splitlines()
    if path.suffix == ".jsonl" and path.is_relative_to(ROOT / "benchmarks" / "worker"):
        return _worker_table(path).splitlines()
    if path.suffix == ".jsonl":
        return _gpu_table(path).splitlines()
    if path.suffix == ".json":
        return list(_objects(json.loads(path.read_text())))
    return path.read_text().splitlines()


def _gpu_table(path: Path) -> str:
    """Draw the table of a run of `benchmarks/gpu` from its last line."""
    last = json.loads(path.read_text().splitlines()[-1])
    return Table(last["upstream"], last["ours"], judged=True).markdown()


def _worker_table(path: Path) -> str:
    """Draw the table of a file that a program of `benchmarks/worker` wrote with `--raw`."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    drawn = {
        "against_upstream": against_upstream.summary,
        "refusals": refusals.summary,
        "threads": threads.summary,
    }
    return drawn[lines[0]["program"]](lines)


def _objects(value: Any) -> Iterator[str]:
    """Give each object's own values as a line."""
    if isinstance(value, dict):
        yield " ".join(str(each) for each in value.values() if not isinstance(each, dict | list))
    for each in value.values() if isinstance(value, dict) else value:
        if isinstance(each, dict | list):
            yield from _objects(each)


def is_shown(said: str, lines: Sequence[str]) -> bool:
    """Say whether one line has all figures of what is said, in their order, rounded as there."""
    wanted = figures(said)
    return any(_follow(wanted, figures(line)) for line in lines)


def _follow(wanted: Sequence[str], there: Sequence[str]) -> bool:
    rest = iter(there)
    return all(any(_same(figure, other) for other in rest) for figure in wanted)


def _same(figure: str, other: str) -> bool:
    digits = len(figure.partition(".")[2])
    # Half a unit of its last digit, and what binary numbers lack.
    return abs(float(figure) - float(other)) <= 0.5 * 10**-digits + 1e-9 and (
        digits > 0 or float(other) == float(figure)
    )


def measured_lines(page: str) -> list[tuple[str, str]]:
    """Give the lines of a page that have a figure with a unit, or are rows of decimals."""
    found = []
    for heading, lines in sections(page).items():
        rows = set(table_rows(lines))
        for line in lines:
            decimals = [figure for figure in figures(line) if "." in figure]
            if _MEASURED.search(plain(line)) or (line in rows and len(decimals) >= 2):
                found.append((heading, line))
    return found


def is_claimed(page: str, heading: str, line: str, rows: Sequence[Claim]) -> bool:
    """Say whether a line's measured figures all are in a claim of its page, or in no claim."""
    of_page = [claim for claim in rows if claim.page == page]
    others = [each for each in no_claims() if each.page == page]
    if line.startswith("|") and any(c.tables and c.quote == heading for c in of_page):
        return True
    if any(each.whole and each.quote == heading for each in others):
        return True
    quotes = [plain(claim.quote) for claim in of_page if not claim.tables]
    quotes += [plain(each.quote) for each in others if not each.whole]
    found = _MEASURED.findall(plain(line)) or figures(line)
    return all(any(_says(quote, figure) for quote in quotes) for figure in found)


def _says(quote: str, figure: str) -> bool:
    return re.search(rf"(?<![\w.,]){re.escape(figure)}(?![\w])", quote) is not None


def pages() -> list[str]:
    """Give the pages that may claim something, by the path in the repository."""
    patterns = ("*.md", "docs/*.md", "recipe/**/*.md", "crates/*/README.md", "tests/*.md")
    more = ("worker-py/README.md", "benchmarks/*/*.md", "benchmarks/laya/results-published/*.md")
    paths = {path for pattern in (*patterns, *more) for path in ROOT.glob(pattern)}
    names = {str(path.relative_to(ROOT)) for path in paths}
    return sorted(names - {PAGE})

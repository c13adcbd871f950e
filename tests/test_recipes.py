"""Every recipe, followed as it stands: what it says to type is typed here, in its order.

`english` is the demo checkpoint here, under that name in a cache of the hub. Where a page's worker
needs a device that is not here, one on the CPU stands in for it, so that the rest of the page is
followed. What cannot run here is checked for what can be known without running it, and then listed
as skipped with the reason (`pytest tests/test_recipes.py -rs`).
"""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.follower import Follower
from tests.harness.omni_jev import ROOT
from tests.harness.page_commands import (
    assert_a_program_of_ours_takes_the_flags,
    assert_files_are_there,
    assert_the_worker_takes_the_flags,
    commands,
)
from tests.harness.recipe_page import NEEDS, Block, UnmarkedError, blocks_of, links_of, pages

CLIENTS = "recipe/clients.md"
BLOCKS = {page: blocks_of(page) for page in pages()}
FOLLOWED = [
    page
    for page, blocks in BLOCKS.items()
    if page != CLIENTS and any(block.can_run for block in blocks)
]
NOT_RUN = [block for blocks in BLOCKS.values() for block in blocks if not block.can_run]

WORKER = "http://127.0.0.1:8000/health"
STAND_IN = Block(
    page="the worker that stands in",
    line=1,
    language="sh",
    verb="serve",
    url=WORKER,
    needs=None,
    text=".venv/bin/python -m omni_jev_worker --model english --device cpu --port 8000\n",
)


@pytest.fixture(scope="module")
def stand_in() -> Iterator[str]:
    """The port of a worker that stands in for one on a device that is not here."""
    with Follower() as follower:
        follower.follow(STAND_IN)
        yield follower.port("8000")


@pytest.mark.parametrize("page", FOLLOWED)
def test_a_page_runs_as_it_stands(page: str, request: pytest.FixtureRequest) -> None:
    blocks = BLOCKS[page]
    lacks_worker = any(block.url == WORKER and not block.can_run for block in blocks)
    has_worker = any(block.url == WORKER and block.can_run for block in blocks)
    up = lacks_worker and not has_worker
    ports = {"8000": request.getfixturevalue("stand_in")} if up else {}
    with Follower(ports) as follower:
        for block in blocks:
            if block.can_run:
                follower.follow(block)


@pytest.mark.parametrize("block", NOT_RUN, ids=lambda block: block.name)
def test_what_is_not_run_here_is_well_formed(block: Block) -> None:
    assert block.needs is not None
    if block.language == "sh":
        checked = subprocess.run(
            ["bash", "-n", "-c", block.text], capture_output=True, text=True, check=False
        )
        assert checked.returncode == 0, checked.stderr
        for words in commands(block.text):
            assert_files_are_there(words)
            assert_the_worker_takes_the_flags(words)
            assert_a_program_of_ours_takes_the_flags(words)
    pytest.skip(f"{block.name} needs {NEEDS[block.needs].reason}")


def test_every_page_says_what_the_recipes_are_for() -> None:
    starts = {page: (ROOT / page).read_text().splitlines()[0] for page in BLOCKS}
    assert [page for page, first in starts.items() if not first.startswith("# ")] == []
    assert {
        "recipe/laya/README.md",
        "recipe/laya/apple-silicon.md",
        "recipe/laya/nvidia.md",
    } <= set(FOLLOWED)


def test_every_link_of_a_page_leads_to_a_file() -> None:
    tops = [*ROOT.glob("*.md"), *(path for path in ROOT.glob("*/README.md"))]
    nested = [ROOT / page for page in BLOCKS] + [*ROOT.glob("*/*/README.md")]
    dead = [
        f"{page.relative_to(ROOT)}: {link}"
        for page in {*tops, *nested}
        for link in links_of(page)
        if not (page.parent / link).exists()
    ]
    assert dead == []


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("```sh\nls\n```\n", "no mark"),
        ("```sh runs\nls\n```\n", "not a known one"),
        ("```sh run needs=luck\nls\n```\n", "nobody knows"),
        ("```sh serve\nls\n```\n", "has a URL"),
        ("```sh run http://127.0.0.1:1/\nls\n```\n", "has a URL"),
        ("```sh run\nls\n", "no end"),
        ("Then:\n\n    ls\n", "an indented line"),
    ],
)
def test_commands_without_a_mark_are_not_overlooked(text: str, wrong: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    with pytest.raises(UnmarkedError, match=re.escape(wrong)):
        blocks_of(str(page))


def test_a_block_that_fails_fails_the_page() -> None:
    block = Block("a page", 1, "sh", "run", None, None, "false\ntrue\n")
    with Follower() as follower, pytest.raises(AssertionError, match="a page:1: exit 1"):
        follower.follow(block)

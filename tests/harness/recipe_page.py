"""The commands of a page that a person follows, as they stand there.

A fenced block's info string says what a test does with it, after the language that GitHub shows:

* ```` ```sh run ````: runs to its end, and ends well.
* ```` ```sh serve URL ````: a server, for a terminal of its own. It is ready when URL answers 200,
  and stays until the page's end, or until another block serves the same URL: then Ctrl-C stops it
  first.
* ```` ```sh env ````: stands before every later block of the page, as in the same terminal.
* ` needs=THING` at the end: only where THING is (`NEEDS`); elsewhere it is listed as not run.

What is run may be `python` or `js` too. A block of another language is no command.
"""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from omni_jev_worker.processors import has_native_bf16
from tests.harness.omni_jev import ROOT

COMMANDS = ("sh", "python", "js")
VERBS = ("run", "serve", "env")

_FENCE = re.compile(r"^(`{3,})(.*)$")
_INFO = re.compile(
    r"(?P<language>\S+) (?P<verb>\S+)(?: (?P<url>http://\S+))?(?: needs=(?P<needs>\S+))?"
)


def _device(name: str) -> Callable[[], bool]:
    return lambda: os.environ.get("OMNI_JEV_RECIPE_DEVICE") == name


@dataclass(frozen=True)
class Need:
    """Why a block that needs this is not run, and whether it is here all the same."""

    reason: str
    is_here: Callable[[], bool] = lambda: False


NEEDS = {
    "mac": Need(
        "an Apple Silicon Mac (there: OMNI_JEV_RECIPE_DEVICE=mps)",
        _device("mps"),
    ),
    "cuda": Need(
        "an NVIDIA GPU (there: OMNI_JEV_RECIPE_DEVICE=cuda)",
        _device("cuda"),
    ),
    "bf16": Need("a processor that computes in bf16", has_native_bf16),
    "int8": Need(
        "a checkpoint that the parity gate lets pass in int8: the demo checkpoint, which stands "
        "in for the published ones here, is refused"
    ),
    "network": Need("the network, and an environment to install into: it is installed already"),
    "hub": Need("the published checkpoints of the hub"),
    "build": Need("a build of its own: the checks have built what they test"),
    "checks": Need("the checks: these are some of them"),
    "quiet": Need("a machine that does nothing else for minutes"),
    "training": Need("a GPU for minutes, and changes the checkpoint that the tests are for"),
    "systemd": Need("a running systemd, and root"),
    "launchd": Need("macOS's launchd"),
    "docker": Need("an image, which this repository does not make"),
}


@dataclass(frozen=True)
class Block:
    """One block of commands."""

    page: str
    line: int
    language: str
    verb: str
    url: str | None
    needs: str | None
    text: str

    @property
    def name(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def can_run(self) -> bool:
        return self.needs is None or NEEDS[self.needs].is_here()


class UnmarkedError(ValueError):
    """A block of commands that does not say what is to be done with it."""


def blocks_of(page: str) -> list[Block]:
    """The blocks of commands of a page, named by its path in the repository, in their order.

    Raises:
        UnmarkedError: A block has no mark, or one that means nothing.
    """
    blocks = []
    opened: tuple[str, str, int] | None = None
    lines: list[str] = []
    for number, line in enumerate((ROOT / page).read_text().splitlines(), 1):
        fence = _FENCE.match(line)
        if opened is None and fence:
            opened, lines = (fence[1], fence[2].strip(), number), []
        elif opened is not None and fence and fence[1] == opened[0] and not fence[2]:
            if opened[1].split(" ")[0] in COMMANDS:
                blocks.append(_block(page, opened[2], opened[1], "\n".join(lines) + "\n"))
            opened = None
        elif opened is not None:
            lines.append(line)
        elif line.startswith("    ") and line.strip():
            raise UnmarkedError(f"{page}:{number}: an indented line: fence it, with a mark")
    if opened is not None:
        raise UnmarkedError(f"{page}:{opened[2]}: the block has no end")
    return blocks


def _block(page: str, line: int, info: str, text: str) -> Block:
    mark = _INFO.fullmatch(info)
    if not mark or mark["verb"] not in VERBS:
        raise UnmarkedError(f"{page}:{line}: no mark, or not a known one: {info!r}")
    if (mark["verb"] == "serve") != (mark["url"] is not None):
        raise UnmarkedError(f"{page}:{line}: `serve`, and nothing else, has a URL")
    if mark["needs"] is not None and mark["needs"] not in NEEDS:
        raise UnmarkedError(f"{page}:{line}: nobody knows needs={mark['needs']}")
    return Block(page, line, mark["language"], mark["verb"], mark["url"], mark["needs"], text)


def pages() -> list[str]:
    """Every recipe, and how the documentation is made, by the path in the repository."""
    found = [
        path
        for places in ("recipe/*.md", "recipe/*/*.md", "docs/*.md")
        for path in ROOT.glob(places)
    ]
    return sorted(str(path.relative_to(ROOT)) for path in found)


def links_of(page: Path) -> list[str]:
    """The links of a page that lead to another file of the repository, without their anchors."""
    text = re.sub(r"^(`{3,}).*?^\1$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    found = re.findall(r"\]\(([^)#\s]+)[^)]*\)", text)
    return [link for link in found if "://" not in link]

"""A hook of mkdocs: the site is made of the repository's pages, each at its own path.

Links between them, and to other files, lead to the same places as in the repository.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File, Files, InclusionLevel

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
_LINK = re.compile(r"(\]\()([^)#\s]+)((?:#[^)]*)?\))")
# What a test does with a block (tests/harness/recipe_page.py) is nothing for a reader.
_MARK = re.compile(r"^(```(?:sh|python|js)) .*$", re.MULTILINE)


def pages() -> list[Path]:
    """The pages of the site, by their paths in the repository."""
    patterns = ("*.md", "docs/*.md", "recipe/*.md", "recipe/*/*.md", "crates/*/README.md")
    more = ("worker-py/README.md", "tests/README.md", "benchmarks/*/*.md")
    found = {path for pattern in (*patterns, *more) for path in ROOT.glob(pattern)}
    return sorted(path.relative_to(ROOT) for path in found)


def targets(page: Path) -> dict[str, Path]:
    """Where the links of a page to this repository's files lead, by the link."""
    found = {}
    for link in {match[2] for match in _LINK.finditer((ROOT / page).read_text())}:
        path = (ROOT / page.parent / link).resolve()
        if "://" not in link and path.exists() and path.is_relative_to(ROOT):
            found[link] = path.relative_to(ROOT)
    return found


def reached(start: set[Path]) -> set[Path]:
    """These pages and every file that they lead to, directly or by another page."""
    found: set[Path] = set()
    fresh = set(start)
    while fresh:
        found |= fresh
        led = {path for page in fresh if page.suffix == ".md" for path in targets(page).values()}
        fresh = {path for path in led if (ROOT / path).is_file()} - found
    return found


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Replace what lies in mkdocs' own folder by the pages, and all that they lead to."""
    folder = Path(config.docs_dir)
    for file in list(files):
        if Path(file.abs_src_path or "").is_relative_to(folder):
            files.remove(file)
    in_menu = set(pages())
    for path in sorted(reached(in_menu)):
        # What is only linked, published results for instance, need not be in the menu.
        inclusion = InclusionLevel.INCLUDED if path in in_menu else InclusionLevel.NOT_IN_NAV
        source = str(ROOT / path)
        made = File.generated(config, path.as_posix(), abs_src_path=source, inclusion=inclusion)
        files.append(made)
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Lead what links to a folder to its page, and take marks for tests out."""
    led = targets(Path(page.file.src_uri))

    def lead(found: re.Match[str]) -> str:
        path = led.get(found[2])
        to_folder = path is not None and (ROOT / path / "README.md").is_file()
        return f"{found[1]}{found[2].rstrip('/')}/README.md{found[3]}" if to_folder else found[0]

    return _MARK.sub(r"\1", _LINK.sub(lead, markdown))

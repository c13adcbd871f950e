"""The documentation: its picture is that of its text, and the site is built without a warning."""

import subprocess
import sys
from pathlib import Path

import pytest

from docs import picture
from tests.harness.omni_jev import ROOT

DOCS = ROOT / "docs"
MKDOCS = ROOT / ".venv-docs" / "bin" / "mkdocs"


def test_the_picture_is_drawn_from_its_text() -> None:
    drawn = picture.draw((DOCS / "architecture.toml").read_text())
    assert drawn == (DOCS / "architecture.svg").read_text()


def test_an_arrow_to_nowhere_is_no_picture() -> None:
    text = 'size = [1, 1]\n[[box]]\nname = "a"\ntitle = "a"\nat = [0, 0, 1, 1]\n'
    with pytest.raises(KeyError, match="nowhere"):
        picture.draw(text + '[[arrow]]\nfrom = "a"\nto = "nowhere"\n')


@pytest.mark.skipif(not MKDOCS.exists(), reason="no .venv-docs: docs/README.md says how to make it")
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    site = tmp_path / "site"
    built = subprocess.run(
        [MKDOCS, "build", "--strict", "--site-dir", site],
        cwd=ROOT,
        env={"NO_MKDOCS_2_WARNING": "1", "PATH": str(Path(sys.executable).parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    for page in ("", "docs/architecture", "recipe/laya/nvidia", "worker-py"):
        assert (site / page / "index.html").is_file(), page
    assert (site / "docs" / "architecture.svg").is_file()
    # A block whose mark is left in would not be shown as a block.
    assert "needs=cuda" not in (site / "recipe/laya/nvidia/index.html").read_text()

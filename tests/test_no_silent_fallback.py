"""The page of rules: each has tests, and each test that it names is there and can fail."""

import ast
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from tests.harness.omni_jev import ROOT

PAGE = ROOT / "docs" / "no-silent-fallback.md"
_ROW = re.compile(r"^\| (.+?) \| (.+?) \|(.*)\|$")
_TEST_ATTRIBUTE = re.compile(r"#\[(tokio::)?test\b[^\]]*\]")
_FOLLOWING = re.compile(r"(?:\s*(?:#\[[^\]]*\]|//[^\n]*))*\s*(?:async )?fn (\w+)")


@dataclass(frozen=True)
class Rule:
    asked: str
    instead: str
    tests: tuple[str, ...]


def rules(text: str | None = None) -> list[Rule]:
    """Read the rows of the page, or of another text of its form."""
    found = []
    for line in (text if text is not None else PAGE.read_text()).splitlines():
        row = _ROW.match(line)
        if row and row[1] != "asked for" and not set(row[1]) <= {"-", " "}:
            found.append(Rule(row[1], row[2], tuple(re.findall("`([^`]+)`", row[3]))))
    return found


@cache
def python_tests(file: str) -> frozenset[str]:
    """The tests of a file that assert or call something."""
    path = ROOT / file
    if not path.is_file():
        return frozenset()
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(
        node.name
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, functions)
        and any(isinstance(part, ast.Call | ast.Assert) for part in ast.walk(node))
    )


@cache
def crate_folder(name: str) -> Path | None:
    for manifest in ROOT.glob("crates/*/Cargo.toml"):
        if tomllib.loads(manifest.read_text())["package"]["name"] == name:
            return manifest.parent
    return None


@cache
def rust_tests(crate: str) -> frozenset[str]:
    """The functions of a crate under a `#[test]` or `#[tokio::test]`."""
    folder = crate_folder(crate)
    found: set[str] = set()
    for path in folder.rglob("*.rs") if folder is not None else ():
        if "target" in path.relative_to(ROOT).parts:
            continue
        text = path.read_text()
        for match in _TEST_ATTRIBUTE.finditer(text):
            if following := _FOLLOWING.match(text, match.end()):
                found.add(following[1])
    return frozenset(found)


def is_there(test: str) -> bool:
    if "::" in test:
        file, _, name = test.partition("::")
        return name.startswith("test_") and name in python_tests(file)
    crate, _, name = test.partition(": ")
    return name in rust_tests(crate)


RULES = rules()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.asked)
def test_each_rule_has_tests_that_are_there(rule: Rule) -> None:
    assert rule.tests, rule
    assert [test for test in rule.tests if not is_there(test)] == []


def test_there_are_rules_for_each_part_and_none_twice() -> None:
    assert len(RULES) > 30
    assert len({(rule.asked, rule.instead) for rule in RULES}) == len(RULES)
    assert all(rule.instead.strip() for rule in RULES)


@pytest.mark.parametrize(
    "test",
    [
        "worker-py/tests/test_engine.py::test_that_there_is_not",
        "worker-py/tests/test_nothing.py::test_a",
        "worker-py/tests/test_engine.py::helper",
        "omni-jev: no_such_test",
        "omni-jev-nothing: a_time_without_a_unit_is_refused_rather_than_guessed",
        # A function that no test attribute stands over.
        "omni-jev-frontend: silent",
        "no form at all",
    ],
)
def test_a_test_that_is_not_there_is_found(test: str) -> None:
    assert not is_there(test)


def test_a_rule_without_a_test_is_found() -> None:
    (planted,) = rules("| an engine | another | |\n")
    assert planted.tests == ()


SKIPS = ("pytest.skip", "pytest.mark.skipif", "pytest.mark.skip")


def skips() -> Iterator[tuple[str, ast.Call]]:
    """Every call in the tests that skips one."""
    for folder in ("tests", "worker-py/tests", "recipe"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call) and _name(node.func) in SKIPS:
                    yield f"{path.relative_to(ROOT)}:{node.lineno}", node


def _name(node: ast.AST) -> str:
    return ast.unparse(node) if isinstance(node, ast.Attribute) else ""


def has_reason(call: ast.Call) -> bool:
    """Whether a call that skips says why: a text, or what is computed to be one."""
    reasons = [word.value for word in call.keywords if word.arg == "reason"]
    if _name(call.func) == "pytest.skip":
        reasons += call.args
    return any(not (isinstance(each, ast.Constant) and not each.value) for each in reasons)


def test_each_skip_has_a_reason_that_the_summary_shows() -> None:
    found = list(skips())
    assert len(found) > 10
    assert [place for place, call in found if not has_reason(call)] == []
    for file in ("pyproject.toml", "worker-py/pyproject.toml"):
        settings = tomllib.loads((ROOT / file).read_text())["tool"]["pytest"]["ini_options"]
        # `-ra`, or `-rs`: the summary names each skipped test with its reason.
        assert re.search(r"-r\w*[as]", str(settings["addopts"])), file


@pytest.mark.parametrize(
    ("text", "says_why"),
    [
        ("pytest.skip('no GPU')", True),
        ("pytest.skip(f'{name} is not here')", True),
        ("pytest.skip()", False),
        ("pytest.skip('')", False),
        ("pytest.mark.skipif(True)", False),
        ("pytest.mark.skipif(True, reason='why')", True),
    ],
)
def test_a_skip_without_a_reason_is_found(text: str, *, says_why: bool) -> None:
    call = ast.parse(text, mode="eval").body
    assert isinstance(call, ast.Call)
    assert has_reason(call) is says_why

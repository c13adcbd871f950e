"""Commands that a page names, checked for what can be known without running them."""

import importlib.util
import re
import shlex
from pathlib import Path

import pytest

from omni_jev_worker import settings
from omni_jev_worker.exits import BAD_FLAGS, Refusal
from tests.harness.omni_jev import ROOT

_XTASK = ROOT / "crates" / "xtask" / "src"
_TOOLS = ("curl", "du")
"""What every system has."""


def commands(text: str) -> list[list[str]]:
    """The words of each line of a shell's text, its continuation lines joined."""
    joined = text.replace("\\\n", " ")
    lines = [shlex.split(line, comments=True) for line in joined.splitlines()]
    return [words for words in lines if words]


def assert_files_are_there(words: list[str]) -> None:
    ours = ("recipe/", "benchmarks/", "worker-py/", "tests/", "crates/")
    named = [word for word in words if word.startswith(ours) and "results/" not in word]
    # A command that writes a file names one that need not be there.
    written = {words[at + 1] for at, word in enumerate(words[:-1]) if word in ("-o", "--out", ">")}
    assert [word for word in named if word not in written and not (ROOT / word).exists()] == []


def assert_the_worker_takes_the_flags(words: list[str]) -> None:
    if "omni_jev_worker" in words:
        flags = words[words.index("omni_jev_worker") + 1 :]
        flags = flags[1:] if flags[:1] == ["parity"] else flags
    elif "--" in words and {"./target/release/omni-jev", "serve"} & set(words):
        flags = words[words.index("--") + 1 :]
    else:
        return
    try:
        settings.parse(flags, {})
    except Refusal as refusal:
        # What this machine cannot do is another matter.
        if refusal.code == BAD_FLAGS:
            pytest.fail(f"{' '.join(words)}: {refusal}")


def assert_a_program_of_ours_takes_the_flags(words: list[str]) -> None:
    programs = [at for at, word in enumerate(words) if (ROOT / word).suffix == ".py"]
    for at in programs:
        # Programs of one folder may have their flags made by a module that they share.
        text = "".join(path.read_text() for path in (ROOT / words[at]).parent.glob("*.py"))
        # Not what is a flag's value, a text of other flags.
        given = [word for word in words[at + 1 :] if re.fullmatch(r"--[a-z-]+(=.*)?", word)]
        flags = [word.partition("=")[0] for word in given]
        assert [flag for flag in flags if f'"{flag}"' not in text] == [], words


def assert_it_exists(text: str) -> None:
    """Check that a command is a program that there is, with flags that it has."""
    (words,) = commands(text)
    while re.fullmatch(r"[A-Z_]+=.*", words[0]):
        words = words[1:]
    assert_files_are_there(words)
    if words[0] == "cargo":
        _assert_cargo_has(words)
    elif words[1:2] == ["-m"]:
        _assert_module_is_there(words)
    elif words[0].endswith(("python", "python3")):
        assert (ROOT / words[1]).is_file(), f"{text}: there is no {words[1]}"
        assert_a_program_of_ours_takes_the_flags(words)
    elif words[0] == "pytest":
        assert all((ROOT / word.partition("::")[0]).exists() for word in words[1:2]), text
    else:
        assert words[0] in _TOOLS, f"{text}: nobody knows {words[0]}"


def _assert_module_is_there(words: list[str]) -> None:
    module = words[2]
    if module == "omni_jev_worker":
        assert_the_worker_takes_the_flags(words)
    elif module.startswith("benchmarks."):
        file = module.replace(".", "/") + ".py"
        assert (ROOT / file).is_file(), f"there is no {file}"
        assert_a_program_of_ours_takes_the_flags([file, *words[3:]])
    else:
        assert importlib.util.find_spec(module) is not None, f"there is no module {module}"


def _assert_cargo_has(words: list[str]) -> None:
    given = words[: words.index("--")] if "--" in words else words
    own = words[len(given) + 1 :]
    if words[1] == "xtask":
        _assert_xtask_has(words[2:])
    elif "--example" in given:
        name = given[given.index("--example") + 1]
        files = [*ROOT.glob(f"crates/*/examples/{name}.rs")]
        files += ROOT.glob(f"crates/*/examples/{name}/*.rs")
        assert files, f"there is no example {name}"
        assert _lacking(own, files) == [], words
    elif "--test" in given:
        name = given[given.index("--test") + 1]
        assert [*ROOT.glob(f"crates/*/tests/{name}.rs"), *ROOT.glob(f"crates/*/tests/{name}")]
    else:
        pytest.fail(f"nobody knows {' '.join(words)}")


def _assert_xtask_has(words: list[str]) -> None:
    sources = [*_XTASK.rglob("*.rs")]
    text = "".join(path.read_text() for path in sources)
    names = [word for word in words[:3] if re.fullmatch(r"[a-z_]+", word)]
    for name in names:
        variant = "".join(part.capitalize() for part in name.split("_"))
        assert re.search(rf"\b{variant}\b", text), f"cargo xtask has no {name}"
    if names[:2] == ["bench", "laya"]:
        file = f"benchmarks/laya/{names[2]}.py"
        assert (ROOT / file).is_file(), f"there is no {file}"
        assert_a_program_of_ours_takes_the_flags([file, *words[3:]])
    else:
        assert _lacking(words, sources) == [], words


def _lacking(words: list[str], sources: list[Path]) -> list[str]:
    """Give the flags that are no field or text of a Rust program."""
    text = "".join(path.read_text() for path in sources)
    flags = [word.partition("=")[0] for word in words if re.fullmatch(r"--[a-z-]+(=.*)?", word)]
    return [
        flag
        for flag in flags
        if not re.search(rf"(\b{flag[2:].replace('-', '_')}: |{flag}\b)", text)
    ]

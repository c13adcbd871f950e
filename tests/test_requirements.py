"""The pinned requirement files of the recipes: what they pin, and where nothing is of CUDA."""

import re
import tomllib

import pytest

from tests.harness.omni_jev import ROOT

FOLDER = ROOT / "recipe" / "laya"
FILES = (
    "requirements-cpu.txt",
    "requirements-onnx.txt",
    "requirements-mps.txt",
    "requirements-cuda.txt",
)
_PIN = re.compile(r"^([a-z0-9][a-z0-9._-]*)==([^\s;]+)", re.MULTILINE)
_CUDA = re.compile(r"nvidia|cuda|triton")


def pins(text: str) -> dict[str, str]:
    """The versions of a requirements file by package."""
    return dict(_PIN.findall(text))


def wanted() -> dict[str, str]:
    """What the worker's package asks for, each with its one version."""
    project = tomllib.loads((ROOT / "worker-py" / "pyproject.toml").read_text())["project"]
    return pins("\n".join(project["dependencies"]))


def test_the_requirements_for_onnx_are_those_of_the_cpu_and_what_the_extra_pins() -> None:
    project = tomllib.loads((ROOT / "worker-py" / "pyproject.toml").read_text())["project"]
    extra = pins("\n".join(project["optional-dependencies"]["onnx"]))
    assert extra.items() <= pins("\n".join(project["optional-dependencies"]["dev"])).items()
    cpu, onnx = (
        pins((FOLDER / f"requirements-{name}.txt").read_text()) for name in ("cpu", "onnx")
    )
    assert extra
    assert (cpu | extra).items() <= onnx.items()


@pytest.mark.parametrize("name", FILES)
def test_a_requirements_file_pins_the_versions_that_the_worker_asks_for(name: str) -> None:
    found = pins((FOLDER / name).read_text())
    expected = wanted()
    assert "torch" in expected
    if name in ("requirements-cpu.txt", "requirements-onnx.txt"):
        # torch's build for CPUs is on an index of its own: the page installs it first.
        version = expected.pop("torch")
        assert "torch" not in found
        assert f"torch=={version} --index-url" in (FOLDER / "README.md").read_text()
    assert {package: found.get(package) for package in expected} == expected


@pytest.mark.parametrize("name", FILES)
def test_a_requirements_file_has_the_lock_files_versions_and_a_hash_for_each(name: str) -> None:
    text = (FOLDER / name).read_text()
    # Where Python's versions need different ones, the lock file has a package twice.
    lock = "requirements-dev.lock" if name == "requirements-onnx.txt" else "requirements.lock"
    locked = set(_PIN.findall((ROOT / "worker-py" / lock).read_text()))
    found = pins(text)
    assert found
    assert found.items() <= locked
    # uv ends the line of a package with a backslash when hashes follow.
    requirements = [line for line in text.splitlines() if not line.startswith((" ", "#"))]
    assert len(requirements) == len(found)
    assert [line for line in requirements if not line.endswith("\\")] == []
    assert text.count("--hash=sha256:") >= len(found)


@pytest.mark.parametrize("name", FILES)
def test_only_the_requirements_for_cuda_hold_what_is_of_cuda(name: str) -> None:
    found = {package for package in pins((FOLDER / name).read_text()) if _CUDA.search(package)}
    if name == "requirements-cuda.txt":
        left_out = (FOLDER / "cuda-packages.txt").read_text().splitlines()
        named = {line for line in left_out if not line.startswith("#")}
        assert named
        assert named <= found
    else:
        assert found == set()


@pytest.mark.parametrize("name", FILES)
def test_the_page_names_the_command_that_made_a_requirements_file(name: str) -> None:
    second = (FOLDER / name).read_text().splitlines()[1]
    command = second.lstrip("# ").removeprefix("uv pip compile ")
    # The page breaks its lines and gives what all three share once.
    page = (FOLDER / "README.md").read_text()
    missing = [word for word in command.split() if word not in page]
    assert missing == []

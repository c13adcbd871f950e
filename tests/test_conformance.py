"""The public conformance suite (PyPI `jevcompat` 0.1.1) against the worker through the frontend."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.harness.omni_jev import OmniJev
from tests.harness.subject import chosen

pytestmark = pytest.mark.skipif(find_spec("jevcompat") is None, reason="jevcompat is not installed")

KEY = "a-key-of-the-tests"
RUN = "import sys; from jevcompat.cli import main; sys.exit(main())"

# Upstream's fields carry no `x_`, and its confidence is an entropy: worker-py/README.md.
DIFFERS_IN_LAYAS_DIALECT = {"response.extensions", "confidence.formula"}
# Of the two on authentication one needs a key and the other needs none.
ONLY_WITH_A_KEY = {"auth.bearer", "auth.missing", "auth.invalid"}
ONLY_WITHOUT_A_KEY = {"auth.ignored-when-off"}
# Asked of a server that refuses names it does not know; ours answers with its default.
NEVER_ASKED = {"errors.shape"}


def results(server: OmniJev, folder: Path, *flags: str) -> tuple[int, dict[str, set[str]]]:
    """Run the suite; give its exit code, and the requirements by `pass`, `fail` and `skip`."""
    report = folder / "report.json"
    command = [sys.executable, "-c", RUN, "test", server.url, "--json", str(report), *flags]
    proxies = {name: "" for name in os.environ if name.lower().endswith("_proxy")}
    run = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env=os.environ | proxies,
    )
    assert report.exists(), run.stdout + run.stderr
    found: dict[str, set[str]] = {"pass": set(), "fail": set(), "skip": set()}
    for result in json.loads(report.read_text())["results"]:
        found[result["status"]].add(result["id"])
    return run.returncode, found


@contextmanager
def speaking_jev(**variables: str) -> Iterator[OmniJev]:
    flags = [*chosen().worker_flags, "--dialect", "jev"]
    with OmniJev(worker_flags=flags, variables=variables) as server:
        # Health needs no key.
        server.wait_until_ready()
        yield server


@pytest.fixture(scope="module")
def jev() -> Iterator[OmniJev]:
    """A server of the hosted dialect, for everyone."""
    with speaking_jev() as server:
        yield server


def test_the_dialect_jev_meets_every_must_and_every_should(jev: OmniJev, tmp_path: Path) -> None:
    code, found = results(jev, tmp_path)
    assert found["fail"] == set()
    assert found["skip"] == NEVER_ASKED | ONLY_WITH_A_KEY
    assert code == 0


def test_the_dialect_jev_meets_every_must_and_every_should_with_a_key(tmp_path: Path) -> None:
    with speaking_jev(LAYA_API_KEY=KEY) as server:
        code, found = results(server, tmp_path, "--key", KEY)
    assert found["fail"] == set()
    assert found["skip"] == NEVER_ASKED | ONLY_WITHOUT_A_KEY
    assert code == 0


def test_the_dialect_laya_meets_every_must_and_differs_in_two_shoulds(
    pair: OmniJev, tmp_path: Path
) -> None:
    code, found = results(pair, tmp_path)
    assert found["fail"] == DIFFERS_IN_LAYAS_DIALECT
    assert found["skip"] == NEVER_ASKED | ONLY_WITH_A_KEY
    assert code == 0


def test_the_dialects_have_the_same_numbers_but_for_the_confidence(
    pair: OmniJev, jev: OmniJev
) -> None:
    body: dict[str, Any] = {
        "state": "I was charged twice.",
        "questions": {
            "refund": {"type": "noul", "instructions": "Refund?"},
            "team": {"type": "choice", "instructions": "Team?", "criteria": {"a": None, "b": "x"}},
            "mood": {"type": "score", "instructions": "Mood?", "criteria": ["calm", "angry"]},
        },
    }
    jevs = jev.decide(body).json()["answers"]
    layas = pair.decide(body).json()["answers"]
    assert jevs["refund"]["noul"] == pytest.approx(layas["refund"]["noul"], abs=1e-3)
    for name in ("team", "mood"):
        assert jevs[name]["probabilities"] == pytest.approx(layas[name]["probabilities"], abs=1e-3)
        assert jevs[name]["x_laya_confidence"] == pytest.approx(layas[name]["confidence"], abs=1e-3)

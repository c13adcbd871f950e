"""`omni-jev calibrate`, and lanes that are made of what it measured."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.harness.decisions import REFUND, decision
from tests.harness.fakes import FakeWorker, fake_python
from tests.harness.lanes import route, wait_for_lane
from tests.harness.omni_jev import (
    DEMO_CHECKPOINT,
    START_SECONDS,
    OmniJev,
    binary,
    clean_environment,
    make_scratch,
)

# The fake worker answers at once, or after so many seconds.
LANES = """
[[worker]]
name = "main"
python = "{python}"
args = "slow 0.05"

[[worker]]
name = "quick"
python = "{python}"
args = "none"
"""


def calibrate(
    folder: Path, toml: str, *words: str, profile: str = "profile.json"
) -> subprocess.CompletedProcess[str]:
    """Run it in a folder, with these settings; what it printed."""
    (folder / "lanes.toml").write_text(toml)
    return subprocess.run(
        [binary(), "calibrate", "--config", "lanes.toml", "--profile", profile, *words],
        cwd=folder,
        env=clean_environment(make_scratch()),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("calibration")


@pytest.fixture(scope="module")
def profile(folder: Path) -> dict[str, Any]:
    """Measure a slow and a quick lane; what was written."""
    toml = LANES.format(python=fake_python(folder))
    counts = ["--warmup", "1", "--iterations", "3", "--lengths", "64,256", "--questions", "1,2"]
    done = calibrate(folder, toml, *counts)
    assert done.returncode == 0, done.stderr
    assert "quick is quicker up to 256 tokens and 2 questions" in done.stdout
    found: dict[str, Any] = json.loads((folder / "profile.json").read_text())
    return found


def served(
    folder: Path, profile: dict[str, Any], toml: str | None = None, **settings: str
) -> FakeWorker:
    path = folder / "used.json"
    path.write_text(json.dumps(profile))
    toml = toml if toml is not None else LANES.format(python=fake_python(folder))
    arguments = ["--lanes", "auto", "--profile", str(path)]
    return FakeWorker(folder, toml=toml, arguments=arguments, **settings)


def test_every_lane_is_measured_by_length_and_questions(profile: dict[str, Any]) -> None:
    main, quick = profile["lanes"]
    for lane in (main, quick):
        assert lane["identity"]["checkpoint"] == "fake"
        assert lane["identity"]["revision"] == "r1"
        measured = {(point["tokens"], point["questions"]) for point in lane["points"]}
        assert measured == {(64, 1), (64, 2), (256, 1), (256, 2)}
    assert min(point["seconds"] for point in main["points"]) >= 0.05
    assert main["takes"] is None
    assert quick["takes"] == {"max_tokens": 256, "max_questions": 2}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--lengths", "0"], "--lengths: it must be a whole number, and one at least"),
        (["--questions", "1,0"], "--questions: it must be a whole number, and one at least"),
        (["--lengths", "64,3"], "--lengths: no request is as short as 3 tokens"),
    ],
)
def test_lengths_and_questions_that_cannot_be_are_refused_before_a_worker_starts(
    tmp_path: Path, words: list[str], said: str
) -> None:
    toml = LANES.format(python=fake_python(tmp_path))
    done = calibrate(tmp_path, toml, *words, profile="other.json")
    assert done.returncode == 64
    assert done.stderr.startswith(f"omni-jev: {said}"), done.stderr
    assert done.stdout == ""
    assert not (tmp_path / "other.json").exists()


def test_the_measured_lengths_are_the_answers_own_and_none_is_past_the_window(
    tmp_path: Path,
) -> None:
    toml = ONE_LANE.format(python=sys.executable, checkpoint=DEMO_CHECKPOINT)
    counts = ["--warmup", "0", "--iterations", "3", "--questions", "1,2"]
    done = calibrate(tmp_path, toml, *counts, "--lengths", "64,128,9999")
    assert done.returncode == 0, done.stderr
    assert "9999 tokens were not measured: the window of main is " in done.stdout
    written = (tmp_path / "profile.json").read_text()
    (lane,) = json.loads(written)["lanes"]
    lengths = sorted({point["tokens"] for point in lane["points"]})
    assert len(lengths) == 2
    assert len(lane["points"]) == 4
    # What the frontend judges by the characters is not what the tokenizer makes of it.
    assert lengths != [64, 128]
    with OmniJev(toml=toml, worker_flags=()) as running:
        running.wait_until_ready()
        health = running.ask("GET", "/health").json()
    assert lengths[1] <= health["window"]
    refused = calibrate(tmp_path, toml, *counts, "--lengths", "9999")
    assert refused.returncode == 64
    assert "--lengths: none of them fits the window of " in refused.stderr
    assert (tmp_path / "profile.json").read_text() == written


def test_lanes_auto_takes_the_limits_of_the_profile(folder: Path, profile: dict[str, Any]) -> None:
    with served(folder, profile) as running:
        for lane in ("main", "quick"):
            wait_for_lane(running, lane)
        four = {f"q{number}": REFUND for number in range(4)}
        assert route(running.decide(decision(**four))) == ("main", "several_questions")
        assert route(running.decide(decision("word " * 600))) == ("main", "too_long")
        assert route(running.decide(decision())) == ("quick", "short_and_single")


def test_a_table_that_overrides_what_was_measured_is_told(
    folder: Path, tmp_path: Path, profile: dict[str, Any]
) -> None:
    toml = LANES.format(python=fake_python(tmp_path)) + 'takes = "short-single"\n'
    counts = ["--warmup", "0", "--iterations", "1", "--lengths", "64", "--questions", "1"]
    done = calibrate(tmp_path, toml, *counts)
    assert done.returncode == 0, done.stderr
    said = "quick keeps what its [[worker]] table says (takes), and not the measured limits"
    assert said in done.stdout
    with served(folder, profile, toml) as running:
        running.process.wait_for("it says so", lambda event: said in event.text)
    # Where no table says anything, neither does the log.
    with served(folder, profile) as running:
        running.wait_until_ready()
        assert "keeps what its" not in running.process.log


def test_a_profile_of_another_machine_is_refused_or_said_to_be_ignored(
    folder: Path, profile: dict[str, Any]
) -> None:
    machine = {**profile["machine"], "processor": "Another", "cores": 999}
    other = {**profile, "machine": machine}
    with served(folder, other) as running:
        assert running.process.wait_for_exit(30) == 64
        assert "was measured on another machine" in running.process.log
        assert "omni-jev calibrate" in running.process.log
    with served(folder, other, PROFILE_MISMATCH="ignore") as running:
        running.process.wait_for("it says so", lambda event: "is not used" in event.text)
        running.wait_until_ready()


def test_a_profile_of_another_revision_ends_it_or_is_forgotten(
    folder: Path, profile: dict[str, Any]
) -> None:
    lanes = [dict(lane) for lane in profile["lanes"]]
    lanes[1]["identity"] = {**lanes[1]["identity"], "revision": "r0"}
    other = {**profile, "lanes": lanes}
    with served(folder, other) as running:
        assert running.process.wait_for_exit(60) == 78
        assert "the profile of the lane quick is of checkpoint fake, revision r0" in (
            running.process.log
        )
    with served(folder, other, PROFILE_MISMATCH="ignore") as running:
        running.process.wait_for("it says so", lambda event: "are not used" in event.text)
        assert route(running.decide(decision()))[0] in {"main", "quick"}


def test_a_profile_of_other_weights_of_the_same_name_ends_it_and_says_so(
    folder: Path, profile: dict[str, Any]
) -> None:
    lanes = [dict(lane) for lane in profile["lanes"]]
    assert {lane["identity"]["checkpoint_hash"] for lane in lanes} == {"f0" * 32}
    lanes[1]["identity"] = {**lanes[1]["identity"], "checkpoint_hash": "ab" * 32}
    with served(folder, {**profile, "lanes": lanes}) as running:
        assert running.process.wait_for_exit(60) == 78
        assert "the profile of the lane quick is of checkpoint fake, revision r1, files abab" in (
            running.process.log
        )
        assert "and what serves there is checkpoint fake, revision r1, files f0f0" in (
            running.process.log
        )


ONE_LANE = """
trace = "trace.jsonl"

[[worker]]
name = "main"
python = "{python}"
args = "--model {checkpoint}"
"""


def test_weights_that_were_changed_in_their_folder_are_noticed(tmp_path: Path) -> None:
    checkpoint = tmp_path / "mine"
    shutil.copytree(DEMO_CHECKPOINT, checkpoint)
    toml = ONE_LANE.format(python=sys.executable, checkpoint=checkpoint)
    (tmp_path / "lanes.toml").write_text(toml)
    scratch = make_scratch()
    counts = ["--warmup", "0", "--iterations", "1", "--lengths", "32", "--questions", "1"]
    subprocess.run(
        [binary(), "calibrate", "--config", "lanes.toml", "--profile", "profile.json", *counts],
        cwd=tmp_path,
        env=clean_environment(scratch),
        capture_output=True,
        timeout=300,
        check=True,
    )
    arguments = ["--profile", str(tmp_path / "profile.json")]
    with OmniJev(toml=toml, arguments=arguments, worker_flags=()) as running:
        running.wait_until_ready()
        assert running.decide(decision()).status == 200
    weights = checkpoint / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-4] ^= 1
    weights.write_bytes(content)
    with OmniJev(toml=toml, arguments=arguments, worker_flags=()) as running:
        assert running.process.wait_for_exit(START_SECONDS) == 78
        assert "the profile of the lane main is of checkpoint mine" in running.process.log
        assert "omni-jev calibrate" in running.process.log


def test_lanes_auto_without_a_profile_names_the_command_that_makes_one(folder: Path) -> None:
    toml = LANES.format(python=fake_python(folder))
    with FakeWorker(folder, toml=toml, arguments=["--lanes", "auto"]) as running:
        assert running.process.wait_for_exit(30) == 64
        assert "`omni-jev calibrate` makes one" in running.process.log

"""More than one checkpoint in a real worker: by name, by language, preloaded, not to be had."""

import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import tiny_checkpoint
from running_worker import LONG, RunningWorker
from test_answers import assert_close

COMMIT = "55cf4c4" + "0" * 33
QUESTIONS = {
    "refund": {"type": "noul", "instructions": "Does the customer ask for a refund?"},
    "team": {
        "type": "choice",
        "instructions": "Which team should read this?",
        "criteria": {"billing": "money", "delivery": "parcel", "other": None},
    },
}
ENGLISH = "Please refund the duplicate charge, the parcel came late."
HINDI = "कृपया मेरा पैसा वापस करें"


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A hub cache with two of the published checkpoints, in a small and random form."""
    cache = tmp_path_factory.mktemp("hub")
    repository = cache / "models--convaiinnovations--laya"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(COMMIT)
    tiny_checkpoint.make(repository / "snapshots" / COMMIT, seed=7)
    tiny_checkpoint.make(repository / "snapshots" / COMMIT / "multilingual", seed=8)
    return cache


class English:
    """A worker on the english checkpoint, and what it did while it prepared another one."""

    def __init__(self, worker: RunningWorker) -> None:
        self.worker = worker
        self.answered_meanwhile = 0
        with ThreadPoolExecutor(1) as pool:
            other = pool.submit(ask, worker, HINDI)
            worker.wait_for("preparing")
            while not other.done():
                before = health(worker)["preparing"]
                assert ask(worker, ENGLISH)["routing"]["model"] == "english"
                after = health(worker)["preparing"]
                self.answered_meanwhile += before == after == ["multilingual"]
            self.first = other.result()


@pytest.fixture(scope="module")
def prepared(hub: Path) -> Iterator[English]:
    """A worker on the english checkpoint that has loaded multilingual too."""
    flags = ["--model", "english", "--device", "cpu"]
    with RunningWorker(flags, HF_HUB_CACHE=str(hub), LAYA_API_KEY="the-key") as running:
        yield English(running)


@pytest.fixture
def english(prepared: English) -> RunningWorker:
    return prepared.worker


def ask(worker: RunningWorker, state: str, model: str | None = None, status: int = 200) -> Any:
    body = {"model": model, "state": state, "questions": QUESTIONS}
    reply = worker.decide(body, authorization="Bearer the-key")
    assert reply.status == status, reply.body
    return reply.json()


def health(worker: RunningWorker) -> Any:
    return worker.ask("GET", "/health").json()


def agent_says(folder: Path, state: str) -> Any:
    from laya import Agent

    return Agent(str(folder), device="cpu").system_one(state, QUESTIONS)["answers"]


def test_a_state_in_another_language_is_answered_by_multilingual(
    english: RunningWorker, hub: Path
) -> None:
    answer = ask(english, HINDI)
    assert answer["routing"]["model"] == "multilingual"
    assert answer["routing"]["repo"] == "convaiinnovations/laya/multilingual"
    assert "devanagari" in answer["routing"]["reason"]
    assert answer["routing"]["detection"]["script"] == "devanagari"
    snapshot = hub / "models--convaiinnovations--laya" / "snapshots" / COMMIT
    assert_close(answer["answers"], agent_says(snapshot / "multilingual", HINDI))


def test_an_english_state_is_answered_by_english(english: RunningWorker, hub: Path) -> None:
    answer = ask(english, ENGLISH, "jev-latest")
    assert answer["routing"]["model"] == "english"
    assert answer["routing"]["reason"] == "English Latin text"
    snapshot = hub / "models--convaiinnovations--laya" / "snapshots" / COMMIT
    assert_close(answer["answers"], agent_says(snapshot, ENGLISH))


def test_a_request_may_name_either(english: RunningWorker) -> None:
    named = ask(english, ENGLISH, "multilingual")
    assert named["routing"]["reason"] == "explicit model='multilingual'"
    assert named["routing"]["model"] == "multilingual"
    assert ask(english, HINDI, "english")["routing"]["model"] == "english"
    assert named["answers"] != ask(english, ENGLISH, "english")["answers"]


def test_health_and_the_list_of_models_name_what_is_loaded(english: RunningWorker) -> None:
    ask(english, ENGLISH, "multilingual")
    said = health(english)
    assert said["loaded"] == ["english", "multilingual"]
    assert said["preparing"] == []
    assert said["checkpoint"] == "convaiinnovations/laya"
    other = said["models"]["multilingual"]
    assert other["checkpoint"] == "convaiinnovations/laya/multilingual"
    assert (other["revision"], other["device"]) == (COMMIT, "cpu")
    assert other["warmup_ms"] > 0
    listed = english.ask("GET", "/v1/models", headers={"authorization": "Bearer the-key"}).json()
    assert [model["name"] for model in listed["models"]] == ["english", "multilingual"]


def test_one_that_cannot_be_had_is_a_503_and_the_default_keeps_serving(
    english: RunningWorker,
) -> None:
    detail = ask(english, ENGLISH, "typed-decisions", status=503)["detail"]
    assert "convaiinnovations/laya at revision main" in detail["message"]
    assert ask(english, ENGLISH)["routing"]["model"] == "english"
    assert health(english)["loaded"][0] == "english"


def test_the_key_is_needed_for_every_checkpoint(english: RunningWorker) -> None:
    body = {"model": "multilingual", "state": ENGLISH, "questions": QUESTIONS}
    assert english.decide(body).status == 401


def test_the_states_of_a_batch_go_to_the_checkpoint_of_each(english: RunningWorker) -> None:
    body = f'{{"states": ["{ENGLISH}", "{HINDI}"], "questions": {{"q": {{"type": "noul"}}}}}}'
    headers = {"authorization": "Bearer the-key"}
    reply = english.ask("POST", "/v1/systemone/batch", body.encode(), headers)
    assert [result["routing"]["model"] for result in reply.json()["results"]] == [
        "english",
        "multilingual",
    ]


def test_the_default_answers_while_another_is_prepared(prepared: English) -> None:
    assert prepared.answered_meanwhile > 0
    assert prepared.first["routing"]["model"] == "multilingual"


def test_a_preloaded_folder_answers_to_its_name_and_ends_with_the_worker(
    tmp_path: Path, tiny: Path
) -> None:
    other = tiny_checkpoint.make(tmp_path / "other", seed=9)
    flags = ["--model", str(tiny), "--preload", str(other), "--device", "cpu", "--dialect", "jev"]
    with RunningWorker(flags) as running:
        assert health(running)["loaded"] == ["tiny", "other"]
        answer = ask(running, ENGLISH, "other")
        assert answer["model"] == "other"
        assert (answer["x_routing"]["model"], answer["x_routing"]["repo"]) == ("other", "other")
        assert ask(running, ENGLISH)["answers"] != answer["answers"]
        child = next(line["child"] for line in running.lines if line.get("child"))
        assert is_running(child)
        # However it ends: this signal leaves it no time to end others.
        running.process.kill()
        running.wait_for_end()
    deadline = time.monotonic() + LONG
    while is_running(child):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_running(pid: int) -> bool:
    """Say whether a process is there and is no zombie, which waits for nothing but its burial."""
    state = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return state.returncode == 0 and not state.stdout.startswith("Z")

"""Checkpoints beside the default, through the frontend: late ones, and ones that do not come."""

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from laya.router import Router

from tests.harness import hub_cache
from tests.harness.decisions import decision
from tests.harness.omni_jev import START_SECONDS, OmniJev

REASON = "x-omni-jev-language-reason"
MULTILINGUAL = {**decision(), "model": "multilingual"}


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A hub cache that holds the demo checkpoint under the name of the multilingual one."""
    return hub_cache.make(tmp_path / "hub", "multilingual")


def test_a_checkpoint_that_takes_longer_than_the_deadline_is_a_504_and_then_there(
    cache: Path,
) -> None:
    # Importing torch alone takes longer.
    settings = {"BACKEND_TIMEOUT": "1s"}
    with OmniJev(settings, variables={"HF_HUB_CACHE": str(cache)}) as running:
        running.wait_until_ready()
        worker = running.worker().pid
        assert running.decide(MULTILINGUAL).status == 504
        deadline = time.monotonic() + START_SECONDS
        while (answer := running.decide(MULTILINGUAL)).status != 200:
            assert answer.status == 504, answer.body
            assert time.monotonic() < deadline, running.process.log
        assert answer.json()["routing"]["model"] == "multilingual"
        assert answer.json()["answers"] == running.decide(decision()).json()["answers"]
        health = running.ask("GET", "/health").json()
        assert (health["loaded"], health["preparing"]) == (["demo", "multilingual"], [])
        # Waiting for it was not taken for a hang.
        assert running.worker().pid == worker


AUTO_REASONS = {
    "I was charged twice for the same order.": ("english", "language_english"),
    "Wo bleibt mein Paket? Es sollte am Montag kommen.": ("multilingual", "language_not_english"),
    "返金希望": ("multilingual", "language_non_latin_script"),
    "Geld terug graag": ("english", "language_undecided_default"),
    "48213": ("english", "no_text_default"),
}


@pytest.mark.parametrize("dialect", ["laya", "jev"])
def test_auto_goes_where_layas_rule_sends_it_and_the_answer_says_so(
    dialect: str, tmp_path: Path
) -> None:
    cache = hub_cache.make(tmp_path / "hub", "", "multilingual")
    flags = ["--model", "english", "--preload", "multilingual", "--dialect", dialect]
    with OmniJev(worker_flags=flags, variables={"HF_HUB_CACHE": str(cache)}) as running:
        running.wait_until_ready()
        for state, (checkpoint, reason) in AUTO_REASONS.items():
            answer = running.decide({**decision(), "state": state, "model": "auto"})
            assert answer.status == 200, answer.body
            told = (answer.header("x-omni-jev-checkpoint"), answer.header(REASON))
            assert told == (checkpoint, reason)
            body = answer.json()
            routing = body["routing" if dialect == "laya" else "x_routing"]
            # The body is upstream's: laya's own decision, and nothing else of ours in it.
            assert routing == dict(Router(default="english").route(state))
        named = running.decide(MULTILINGUAL)
        assert named.header(REASON) is None
        # What is this worker's own in a question reaches the other checkpoint's process too.
        criteria = dict.fromkeys(["a refund", "a new password", "a delivery date"])
        wish = {"type": "choice", "instructions": "What?", "criteria": criteria, "x_shortlist": 2}
        narrowed = running.decide({**MULTILINGUAL, "questions": {"wish": wish}}).json()
        assert narrowed["answers"]["wish"]["x_shortlist"]["of"] == 3


class SilentHub:
    """A hub that takes connections and says nothing, as a download that stalls."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._taken: list[socket.socket] = []
        self.asked = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def _accept(self) -> None:
        while True:
            try:
                self._taken.append(self._listener.accept()[0])
            except OSError:
                return
            self.asked.set()

    def close(self) -> None:
        self._listener.close()
        for taken in self._taken:
            taken.close()


@pytest.fixture
def silent_hub() -> Iterator[SilentHub]:
    hub = SilentHub()
    yield hub
    hub.close()


def test_the_default_and_health_answer_while_another_is_downloaded(
    silent_hub: SilentHub, tmp_path: Path
) -> None:
    variables = {
        "HF_ENDPOINT": silent_hub.url,
        "HF_HUB_CACHE": str(tmp_path),
        "HF_HUB_OFFLINE": "0",
    }
    with OmniJev({"BACKEND_TIMEOUT": "5s"}, variables=variables) as running:
        running.wait_until_ready()
        waiting = threading.Thread(target=running.decide, args=(MULTILINGUAL,))
        waiting.start()
        assert silent_hub.asked.wait(START_SECONDS)
        for _ in range(20):
            health = running.ask("GET", "/health").json()
            assert (health["status"], health["preparing"]) == ("ready", ["multilingual"])
            assert running.decide(decision()).status == 200
        waiting.join()

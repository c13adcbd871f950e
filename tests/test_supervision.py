"""The worker lives and dies with the frontend, and never the other way round."""

import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.harness.client import Answer, assert_own_error, assert_unavailable
from tests.harness.decisions import decision
from tests.harness.logged_process import kill
from tests.harness.omni_jev import DEMO_CHECKPOINT, START_SECONDS, OmniJev


class Kept:
    """A pair for tests that need a ready one, since a start takes seconds; then another."""

    def __init__(self) -> None:
        self._running: OmniJev | None = None

    def start(self) -> OmniJev:
        """Start one anew."""
        self.close()
        self._running = OmniJev()
        return self._running

    def ready(self) -> OmniJev:
        """Give the one that runs, ready."""
        running = self._running
        if running is None or not running.process.is_alive():
            running = self.start()
        running.wait_until_ready()
        return running

    def close(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            running.__exit__(None, None, None)


@pytest.fixture(scope="module")
def kept() -> Iterator[Kept]:
    kept = Kept()
    yield kept
    kept.close()


def test_work_is_refused_with_retry_after_while_the_worker_starts(kept: Kept) -> None:
    running = kept.start()
    assert_unavailable(running.decide(decision()))
    running.wait_until_ready()
    assert running.decide(decision()).status == 200


def ask_until(running: OmniJev, status: int, seconds: float) -> list[Answer]:
    """Ask again and again until the status comes; all answers, the last one with it."""
    answers: list[Answer] = []
    deadline = time.monotonic() + seconds
    while not answers or answers[-1].status != status:
        assert time.monotonic() < deadline, f"no {status}: {[a.status for a in answers[-9:]]}"
        if answers:
            running.process.wait_for_news(0.1)
        answers.append(running.decide(decision()))
    return answers


def test_a_killed_worker_means_503_at_once_and_200_again_without_help(kept: Kept) -> None:
    running = kept.ready()
    first = running.worker()
    before = running.decide(decision())
    kill(first.pid)
    # What is sent in the instant before the frontend learns of it is lost with the worker.
    *lost, refused = ask_until(running, 503, seconds=2)
    for answer in lost:
        assert_own_error(answer, 502, "backend_error")
    assert_unavailable(refused)
    *waiting, answered = ask_until(running, 200, START_SECONDS)
    for answer in waiting:
        assert_unavailable(answer)
    assert answered.body == before.body
    assert running.worker().pid != first.pid


def at_the_spawn(running: OmniJev) -> None:
    running.wait_for_process()


def during_the_imports(running: OmniJev) -> None:
    running.process.wait_for("imports", lambda event: event["phase"] == "import")


def when_loading(running: OmniJev) -> None:
    running.process.wait_for("it loads", lambda event: event["phase"] == "load")


def when_ready(running: OmniJev) -> None:
    running.wait_until_ready()


@contextmanager
def pair_at(moment: Callable[[OmniJev], None], kept: Kept) -> Iterator[OmniJev]:
    """Give a pair in a moment of its life."""
    if moment is when_ready:
        yield kept.ready()
        return
    with OmniJev() as running:
        moment(running)
        yield running


@pytest.mark.parametrize("moment", [at_the_spawn, during_the_imports, when_loading, when_ready])
def test_a_killed_frontend_leaves_no_worker_after_two_seconds(
    moment: Callable[[OmniJev], None], kept: Kept
) -> None:
    with pair_at(moment, kept) as running:
        assert running.processes(), "there must be a worker for this to show anything"
        running.process.send(signal.SIGKILL)
        running.process.wait_for_exit()
        left = running.left_after(2)
        assert not left, f"still there: {left}"


@pytest.mark.parametrize("moment", [at_the_spawn, during_the_imports, when_ready])
def test_a_terminated_frontend_exits_0_and_takes_its_worker_along(
    moment: Callable[[OmniJev], None], kept: Kept
) -> None:
    with pair_at(moment, kept) as running:
        assert running.terminate() == 0
        assert running.processes() == []


def test_an_interrupt_is_a_request_to_stop_too() -> None:
    with OmniJev() as running:
        during_the_imports(running)
        running.process.send(signal.SIGINT)
        assert running.process.wait_for_exit(60) == 0
        assert running.processes() == []


def missing_folder(folder: Path) -> str:
    shutil.rmtree(folder)
    return folder.name


def without_weights(folder: Path) -> str:
    (folder / "model.safetensors").unlink()
    return "model.safetensors"


def without_config(folder: Path) -> str:
    (folder / "rl_agent_config.json").unlink()
    return "rl_agent_config.json"


def truncated_weights(folder: Path) -> str:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])
    return weights.name


@pytest.mark.parametrize(
    "break_it", [missing_folder, without_weights, without_config, truncated_weights]
)
def test_a_checkpoint_that_cannot_work_ends_the_start_with_78_and_its_name(
    tmp_path: Path, break_it: Callable[[Path], str]
) -> None:
    folder = tmp_path / "checkpoint-of-this-test"
    shutil.copytree(DEMO_CHECKPOINT, folder)
    named = break_it(folder)
    with OmniJev(worker_flags=["--model", str(folder)]) as running:
        assert running.process.wait_for_exit() == 78
        assert named in running.process.events[-1].text
        assert "Traceback" not in running.process.log
        assert running.processes() == []


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--model", "demo", "--no-such-flag"], "--no-such-flag"),
        (["--model", "demo", "--device", "abacus"], "--device"),
    ],
)
def test_a_wrong_worker_flag_ends_the_start_with_64_and_its_name(
    flags: list[str], named: str
) -> None:
    with OmniJev(worker_flags=flags) as running:
        assert running.process.wait_for_exit() == 64
        assert named in running.process.events[-1].text
        assert "Traceback" not in running.process.log
        assert running.processes() == []


def test_a_required_device_that_is_missing_ends_the_start_with_78() -> None:
    # No machine has both.
    import torch

    missing = (
        "mps" if torch.cuda.is_available() or not torch.backends.mps.is_available() else "cuda"
    )
    flags = ["--model", "demo", "--device", missing, "--require-device"]
    with OmniJev(worker_flags=flags) as running:
        assert running.process.wait_for_exit() == 78
        assert missing in running.process.events[-1].text

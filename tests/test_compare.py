"""`recipe/laya/compare_with_backend.py` against the real thing."""

import subprocess
import sys

import pytest

from tests.harness.omni_jev import ROOT, OmniJev
from tests.harness.servers import Received, Reply, Server, flip_one_byte, forwarding
from tests.harness.worker import StandaloneWorker

SCRIPT = ROOT / "recipe" / "laya" / "compare_with_backend.py"
CHECKS = ["health", "choice", "score", "noul", "together", "invalid", "large"]


def run_script(backend: str, frontend: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, SCRIPT, "--model=demo", f"--backend={backend}", f"--frontend={frontend}"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def verdicts(run: subprocess.CompletedProcess[str]) -> dict[str, str]:
    """Map each check's name to its first word."""
    words = [line.split() for line in run.stdout.splitlines()]
    return {name: verdict for verdict, name, *_ in words if verdict in {"PASS", "FAIL"}}


def test_the_running_pair_answers_as_its_worker_does_on_its_own_socket(pair: OmniJev) -> None:
    run = run_script(f"unix:{pair.worker_socket()}", pair.url)
    assert verdicts(run) == dict.fromkeys(CHECKS, "PASS"), run.stdout + run.stderr
    assert run.returncode == 0


def test_a_frontend_before_a_worker_started_by_hand_passes_too(
    standalone_worker: StandaloneWorker,
) -> None:
    with OmniJev({"BACKEND_URL": standalone_worker.url}, worker_flags=()) as running:
        run = run_script(standalone_worker.url, running.url)
    assert verdicts(run) == dict.fromkeys(CHECKS, "PASS"), run.stdout + run.stderr
    assert run.returncode == 0


@pytest.mark.parametrize("meddled_with", CHECKS)
def test_one_byte_that_differs_fails_its_check_and_no_other(
    pair: OmniJev, meddled_with: str
) -> None:
    seen = 0

    def meddle(request: Received, reply: Reply) -> Reply:
        nonlocal seen
        seen += 1
        if seen != CHECKS.index(meddled_with) + 1:
            return reply
        # The middle of health may be one of the numbers that are set aside: its first key is not.
        return flip_one_byte(reply, at=2 if request.path == "/health" else None)

    with Server(forwarding(pair.address, meddle)) as proxy:
        run = run_script(f"unix:{pair.worker_socket()}", proxy.url)
    expected = dict.fromkeys(CHECKS, "PASS") | {meddled_with: "FAIL"}
    assert verdicts(run) == expected, run.stdout + run.stderr
    assert run.returncode == 1


def test_a_changed_status_fails(pair: OmniJev) -> None:
    def meddle(_request: Received, reply: Reply) -> Reply:
        return Reply(201 if reply.status == 200 else reply.status, reply.body, reply.headers)

    with Server(forwarding(pair.address, meddle)) as proxy:
        run = run_script(f"unix:{pair.worker_socket()}", proxy.url)
    expected = dict.fromkeys(CHECKS, "FAIL") | {"invalid": "PASS"}
    assert verdicts(run) == expected, run.stdout + run.stderr
    assert run.returncode == 1

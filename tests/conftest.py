"""Processes that are started once and shared by the tests that do them no harm."""

import os
import signal
from collections.abc import Iterator

import pytest

from tests.harness.omni_jev import OmniJev
from tests.harness.subject import chosen
from tests.harness.worker import StandaloneWorker

# Two threads of arithmetic beside other busy processes on two cores are many times slower than one.
# Set before any test imports torch.
os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_configure() -> None:
    """Let a SIGTERM (a time limit in CI) end the run as Ctrl-C does: with every process ended."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)


@pytest.fixture(scope="session")
def pair() -> Iterator[OmniJev]:
    """Start a frontend with its supervised worker on the chosen checkpoint; both are ready."""
    with OmniJev(worker_flags=chosen().worker_flags) as running:
        running.wait_until_ready()
        yield running


@pytest.fixture(scope="session")
def standalone_worker() -> Iterator[StandaloneWorker]:
    """Start a worker by hand on the demo checkpoint; it is ready."""
    with StandaloneWorker() as running:
        _ = running.address
        yield running

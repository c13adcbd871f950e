"""A worker started by hand, without a supervisor."""

import shutil
import sys
from collections.abc import Sequence

from tests.harness.logged_process import LoggedProcess
from tests.harness.omni_jev import START_SECONDS, clean_environment, make_scratch


class StandaloneWorker:
    """`python -m omni_jev_worker` on a port of its own choice; ready when made."""

    def __init__(self, flags: Sequence[str] = ("--model", "demo")) -> None:
        self.scratch = make_scratch()
        self.process = LoggedProcess(
            [sys.executable, "-m", "omni_jev_worker", *flags, "--port", "0"],
            clean_environment(self.scratch),
            directory=self.scratch,
        )

    def __enter__(self) -> "StandaloneWorker":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.close()
        shutil.rmtree(self.scratch, ignore_errors=True)

    @property
    def address(self) -> str:
        """`host:port`, as soon as it is ready: it listens only then."""
        event = self.process.wait_for(
            "it is ready",
            lambda event: event["phase"] == "ready" and event["port"] is not None,
            START_SECONDS,
        )
        return f"127.0.0.1:{event['port']}"

    @property
    def url(self) -> str:
        return f"http://{self.address}"

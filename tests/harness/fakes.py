"""The real binary with a fake worker."""

import sys
from collections.abc import Sequence
from pathlib import Path

from tests.harness.omni_jev import ROOT, OmniJev

FAKE_WORKER = ROOT / "tests" / "fake_workers" / "fake_worker.py"


def fake_python(folder: Path) -> Path:
    """Make a program that stands in for the worker's Python and runs the fake worker."""
    program = folder / "python"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S {FAKE_WORKER} "$@"\n')
    program.chmod(0o755)
    return program


class FakeWorker(OmniJev):
    """A running binary whose worker has this vice; `settings` are without their `OMNI_JEV_`."""

    def __init__(
        self,
        folder: Path,
        *vice: str,
        toml: str | None = None,
        arguments: Sequence[str] = (),
        program: str | None = None,
        **settings: str,
    ) -> None:
        self.python = fake_python(folder)
        # Clients ask all the time: a line for each request would be all of the log.
        log = "info,omni_jev::access=off"
        chosen = {"WORKER_PYTHON": str(self.python), "LOG": log, **settings}
        super().__init__(
            chosen,
            toml=toml,
            arguments=arguments,
            worker_flags=vice,
            program=Path(program) if program else None,
        )

    def starts(self) -> int:
        """How many workers have been started."""
        try:
            return len((self.scratch / "starts").read_text().splitlines())
        except FileNotFoundError:
            return 0

    def switch_on(self, vice: str) -> int:
        """Give the worker that runs now another vice; its process id."""
        pid = self.worker().pid
        # Written elsewhere and moved, so that the worker never reads half a number.
        (self.scratch / "new-vice").write_text(str(pid))
        (self.scratch / "new-vice").rename(self.scratch / vice)
        return pid

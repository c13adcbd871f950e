"""An engine in this process, on a checkpoint, warm."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from omni_jev_worker import checkpoints
from omni_jev_worker.engine import Engine
from omni_jev_worker.model import Model
from omni_jev_worker.queue import Errand, Job, RowQueue

# Importing torch takes seconds when idle and much longer on a machine that builds something.
LONG: Final = 180.0

NOUL: Final = {"refund": {"type": "noul", "instructions": "Does the customer ask for a refund?"}}
"""One question."""


class Started:
    """An engine on the tiny checkpoint, warm."""

    def __init__(
        self, folder: Path, *, device: str = "cpu", require_device: bool = False, **options: Any
    ) -> None:
        self.queue = RowQueue(10_000)
        self.checkpoint = checkpoints.from_folder(str(folder))
        self.engine = Engine(
            self.checkpoint,
            self.queue,
            device=device,
            require_device=require_device,
            threads=1,
            **options,
        )
        self.engine.start().result(LONG)
        self.model: Model = self.engine.model

    def job(self, state: Any, questions: dict[str, Any] = NOUL) -> Job:
        encoded = self.model.encode(state, questions)
        return Job(self.checkpoint.name, encoded, encoded.lengths)

    def answers(self, job: Job) -> Any:
        return self.model.decode(job.encoded, job.result.result(LONG))

    def ask(self, state: Any, questions: dict[str, Any] = NOUL) -> Any:
        job = self.job(state, questions)
        self.queue.put(job)
        return self.answers(job)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep the engine busy, so that what is put meanwhile waits together."""
        busy, go_on = threading.Event(), threading.Event()

        def wait() -> None:
            busy.set()
            go_on.wait(LONG)

        self.queue.put(Errand(wait))
        assert busy.wait(LONG)
        try:
            yield
        finally:
            go_on.set()

    def settle(self) -> None:
        """Wait until the engine has told all about what it has answered."""
        errand = Errand(lambda: None)
        self.queue.put(errand)
        errand.result.result(LONG)


@contextmanager
def starting(folder: Path, **options: Any) -> Iterator[Started]:
    made = Started(folder, **options)
    try:
        yield made
    finally:
        made.engine.stop()

"""Which checkpoint the tests run against: the demo, or the one that `tests/contract.py` chose."""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.harness.omni_jev import DEMO_CHECKPOINT

_VARIABLE = "OMNI_JEV_CONTRACT"


@dataclass(frozen=True)
class Subject:
    model: str = "demo"
    folder: str = str(DEMO_CHECKPOINT)
    """The same checkpoint's, for laya's own agent."""
    device: str = "cpu"
    flags: tuple[str, ...] = ()
    """More of the worker's."""
    requests: int = 300
    """How many generated ones are compared."""

    @property
    def worker_flags(self) -> list[str]:
        device = [] if self.model == "demo" else ["--device", self.device, "--require-device"]
        # Every state is for this one, whatever its language.
        return ["--model", self.model, "--routing", "off", *device, *self.flags]

    @property
    def tolerance(self) -> float:
        """How far a number may be from laya's own: batches of half precision differ by more."""
        return 1e-3 if self.device == "cpu" else 1e-2

    @property
    def path(self) -> Path:
        return Path(self.folder)

    def publish(self) -> None:
        """Tell the tests that this process runs."""
        os.environ[_VARIABLE] = json.dumps(asdict(self))


def chosen() -> Subject:
    """What the tests are to run against."""
    fields = json.loads(os.environ.get(_VARIABLE, "{}"))
    return Subject(**{**fields, "flags": tuple(fields.get("flags", ()))})

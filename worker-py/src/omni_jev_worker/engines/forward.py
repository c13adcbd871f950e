"""What an engine is to the rest of the worker: it makes an artifact, and runs one.

`load` gives a pass: ``forward(rows) -> logits, probabilities to act``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from omni_jev_worker.collate import Item
from omni_jev_worker.scores import Scores

ANY_LENGTH: Final = "any"
"""The bucket of an artifact that takes rows of every length."""


class Unavailable(Exception):
    """An engine cannot run here, or not this checkpoint; the text completes "because … "."""


@dataclass(frozen=True, slots=True)
class Reach:
    """The most that an engine takes of one thing at a time."""

    tokens: int
    """Of a row."""
    rows: int
    """Of a pass."""
    options: int
    """Of a row."""


class Forward(Protocol):
    """A loaded artifact. Used by one thread."""

    @property
    def reach(self) -> Reach:
        """What it takes."""

    def __call__(self, items: Sequence[Item]) -> Scores:
        """Run at least one of laya's rows. Raises what its library raises."""


@dataclass(frozen=True, slots=True)
class Foreign:
    """What runs a model instead of torch."""

    engine: str
    device: str
    weights: str
    """The precision, as ``--weights`` has it."""
    artifact: str
    """The hash of the artifact's files."""
    forward: Forward


class Engine(Protocol):
    """One library that runs networks."""

    @property
    def name(self) -> str:
        """What ``--engine`` calls it."""

    @property
    def device(self) -> str:
        """Where it runs: one of the names of ``--device``."""

    @property
    def members(self) -> frozenset[str]:
        """The names of the files that an artifact of it consists of."""

    @property
    def graph(self) -> str:
        """The one of them that says what is computed."""

    @property
    def bucket(self) -> str:
        """The length in tokens that its artifacts are for, or `ANY_LENGTH`."""

    def check_system(self) -> None:
        """Say whether it can run on this system at all. Raises `Unavailable`."""

    def check(self) -> Mapping[str, str]:
        """Give the versions of what it needs. Raises `Unavailable` where something is missing."""

    def build(self, model: Any, window: int, weights: str, folder: Path) -> None:
        """Write an artifact's files for a laya model in full precision on the CPU.

        ``window`` is the length of the longest row, ``weights`` the precision. Raises
        `Unavailable` for a model of another form.
        """

    def inspect(self, folder: Path) -> None:
        """Check an artifact's files without running them. Raises `ValueError` with the reason."""

    def load(self, folder: Path, window: int, threads: int) -> Forward:
        """Make an artifact ready to run. Raises what its library raises."""

"""Progress bars on standard error, which a file or a pipe gets nothing of."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Self, TypeVar

try:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
except ImportError:
    raise SystemExit("error: rich is not installed: cargo xtask setup --dev") from None

_Kind = TypeVar("_Kind")


class Bars:
    """Bars, and lines above them."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self._console,
            # Drawn by a thread of this process, which times requests: not often.
            refresh_per_second=2,
            disable=not sys.stderr.isatty(),
        )

    def say(self, text: str) -> None:
        """Tell what happened."""
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def over(self, what: str, items: Iterable[_Kind], count: int) -> Iterator[_Kind]:
        """Give the items one by one, with a bar that they move."""
        task = self._progress.add_task(what, total=count)
        try:
            for item in items:
                yield item
                self._progress.advance(task)
        finally:
            self._progress.remove_task(task)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._progress.stop()

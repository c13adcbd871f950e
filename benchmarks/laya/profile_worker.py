"""The worker with a clock at each of its steps, for `profile.py`: started by it.

    python profile_worker.py SPANS_FILE FLAG...

Its functions are the worker's own, each called through one that notes when it began and ended.
What that costs is some microseconds a request. The spans are written when it ends.
"""

from __future__ import annotations

import functools
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

# Takes this folder from the path: torch needs the standard library's `profile`.
import benchmarks.laya  # noqa: F401

_spans: list[tuple[str, int, int]] = []
"""Name, begin and end in nanoseconds of the clock that all processes of the machine share."""
_put: dict[int, int] = {}
"""When each job that waits came into the queue, by its identity."""


def timed(name: str, owner: Any, attribute: str) -> None:
    """Note a span each time that a function or method runs."""
    work: Callable[..., Any] = getattr(owner, attribute)

    @functools.wraps(work)
    def run(*arguments: Any, **named: Any) -> Any:
        begun = time.perf_counter_ns()
        try:
            return work(*arguments, **named)
        finally:
            _spans.append((name, begun, time.perf_counter_ns()))

    setattr(owner, attribute, run)


def watch_queue() -> None:
    """Note how long jobs wait, and how long their batch then takes."""
    from omni_jev_worker.engine import Engine
    from omni_jev_worker.queue import Job, RowQueue

    put, start = RowQueue.put, Engine._start

    def noted_put(queue: Any, job: Any) -> None:
        if isinstance(job, Job):
            _put[id(job)] = time.perf_counter_ns()
        put(queue, job)

    def noted_start(engine: Any, batch: Any) -> Any:
        begun = time.perf_counter_ns()
        for piece in batch:
            came = _put.pop(id(piece.job), None)
            if came is not None:
                _spans.append(("queue", came, begun))
        wait = start(engine, batch)

        def noted_wait() -> Any:
            try:
                return wait()
            finally:
                _spans.append(("batch", begun, time.perf_counter_ns()))

        return noted_wait

    RowQueue.put = noted_put  # type: ignore[assignment,method-assign]
    Engine._start = noted_start  # type: ignore[assignment,method-assign]


def watch_requests() -> None:
    """Note how long the worker has a decision: from its whole head to its whole answer."""
    from omni_jev_worker.app import App

    asgi = App.asgi

    async def noted(app: Any, scope: Any, receive: Any, send: Any) -> None:
        begun = time.perf_counter_ns()
        try:
            await asgi(app, scope, receive, send)
        finally:
            if scope.get("path") == "/v1/systemone":
                _spans.append(("worker", begun, time.perf_counter_ns()))

    App.asgi = noted  # type: ignore[assignment,method-assign]


def watch_model() -> None:
    """Note tokenizing, laying out for the device, and decoding."""
    from omni_jev_worker import laya_pass, model, packed
    from omni_jev_worker.network import layouts

    timed("tokenize", model.Model, "encode")
    timed("decode", model.Model, "decode")
    timed("copy", laya_pass, "collate")
    timed("copy", packed, "_inputs")
    for layout in (each for each in vars(layouts).values() if isinstance(each, type)):
        if layout.__module__ == layouts.__name__ and "fill" in vars(layout):
            timed("copy", layout, "fill")


def main() -> int:
    """Serve, then write the spans; the worker's exit code."""
    file, *flags = sys.argv[1:]
    from omni_jev_worker import cli

    # The model's module imports torch, which the worker would do later, and on its own thread.
    watch_model()
    watch_queue()
    watch_requests()
    code = cli.main(flags)
    with Path(file).open("w", encoding="utf-8") as written:
        for span in _spans:
            written.write(json.dumps(span) + "\n")
    return code


if __name__ == "__main__":
    sys.exit(main())

"""Spans of requests: which belong to which, and where each request's time went."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

STEPS: Final = {
    "frontend": "the frontend, with its sockets",
    "sockets": "the client's and the worker's sockets, HTTP as far as the head",
    "tokenize": "tokenize: rows of tokens",
    "queue": "queue: from the tokens to the engine",
    "copy": "copy: rows laid out for the device",
    "device": "device: the model's pass, until its scores are there",
    "decode": "decode: answers of scores",
    "rest": "the worker's rest: JSON, checks, changes of thread, writing",
}
"""Where a request's time goes, in the order in which it goes there."""


class Span(NamedTuple):
    """A step, with its begin and end in nanoseconds of the machine's clock."""

    name: str
    begin: int
    end: int

    @property
    def ms(self) -> float:
        """How long it took."""
        return (self.end - self.begin) / 1e6


def read(path: Path) -> list[Span]:
    """Read what `profile_worker.py` wrote, in the order of the begins."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return sorted((Span(*json.loads(line)) for line in lines), key=lambda span: span.begin)


def within(spans: Sequence[Span], request: Span) -> list[Span]:
    """Give the spans that began within a request; they are its own, where none is beside it."""
    first = bisect_left(spans, request.begin, key=lambda span: span.begin)
    last = bisect_left(spans, request.end, key=lambda span: span.begin)
    return list(spans[first:last])


def steps(request: Span, own: Sequence[Span]) -> dict[str, float]:
    """Divide a request's milliseconds among the steps; `outside` is what the worker had not yet.

    Raises `ValueError` where the worker has not noted the request.
    """
    sums: dict[str, float] = {}
    for span in own:
        # The client may have the answer, and note it, before the worker notes that it is sent.
        counted = span._replace(end=min(span.end, request.end))
        sums[span.name] = sums.get(span.name, 0.0) + counted.ms
    missing = {"worker", "tokenize", "queue", "batch", "decode"} - sums.keys()
    if missing:
        raise ValueError(f"the worker noted no {', '.join(sorted(missing))}")
    copy = sums.get("copy", 0.0)
    known = sums["tokenize"] + sums["queue"] + sums["batch"] + sums["decode"]
    return {
        "outside": request.ms - sums["worker"],
        "tokenize": sums["tokenize"],
        "queue": sums["queue"],
        "copy": copy,
        "device": sums["batch"] - copy,
        "decode": sums["decode"],
        "rest": sums["worker"] - known,
    }


def trace(requests: Sequence[tuple[str, Span]], spans: Sequence[Span]) -> Mapping[str, Any]:
    """Give spans as trace events, for https://ui.perfetto.dev or `chrome://tracing`."""
    threads = {"worker": 2, "tokenize": 3, "queue": 4, "batch": 5, "copy": 6, "decode": 3}
    events = [_event(f"request: {name}", span, 1) for name, span in requests]
    inside = [span for _, request in requests for span in within(spans, request)]
    events += [_event(span.name, span, threads.get(span.name, 7)) for span in inside]
    return {"displayTimeUnit": "ms", "traceEvents": events}


def _event(name: str, span: Span, thread: int) -> dict[str, Any]:
    micro = {"ts": span.begin / 1000, "dur": (span.end - span.begin) / 1000}
    return {"name": name, "ph": "X", "pid": 1, "tid": thread, **micro}

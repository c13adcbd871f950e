"""A worker whose model costs nothing, for `request_path`: started by it, in any checkout.

    python request_path_worker.py PASS_MS FLAG...

For each line that comes on standard input it prints the names of its threads, by their numbers.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

THREADS = "threads"
"""The line that asks for the threads."""


def without_model(pass_ms: float) -> None:
    """Replace the pass of the model by fixed scores, and the batches by those of a CUDA device."""
    import numpy as np

    from omni_jev_worker import batching

    bounds_for = batching.bounds_for
    batching.bounds_for = lambda device: bounds_for(device and "cuda")

    from omni_jev_worker import model
    from omni_jev_worker.scores import Scores

    logits = np.random.default_rng(1).normal(size=(64, 255)).astype(np.float32)
    acts = np.full((64, 2), 0.5, dtype=np.float32)

    def infer(_: Any, batch: Sequence[Any], *rest: Any, **named: Any) -> list[Any]:
        del rest, named
        if pass_ms:
            time.sleep(pass_ms / 1000)
        return [Scores(logits[: len(e.items)], acts[: len(e.items)]) for e in batch]

    model.Model.infer = infer  # type: ignore[assignment,method-assign]


def answer_about_threads() -> None:
    """Answer each line on standard input."""
    # The worker takes `print` for a line of its log.
    with os.fdopen(os.dup(1), "w") as told:
        for _ in sys.stdin:
            names = {thread.native_id: thread.name for thread in threading.enumerate()}
            told.write(json.dumps(names) + "\n")
            told.flush()


def main() -> int:
    """Serve; the worker's exit code."""
    pass_ms, *flags = sys.argv[1:]
    threading.Thread(target=answer_about_threads, name="benchmark", daemon=True).start()
    without_model(float(pass_ms))
    from omni_jev_worker import cli

    return cli.main(flags)


if __name__ == "__main__":
    sys.exit(main())

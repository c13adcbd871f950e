"""A graph that ONNX Runtime runs."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import onnxruntime

from omni_jev_worker.collate import Item
from omni_jev_worker.engines.forward import Reach
from omni_jev_worker.engines.ort.writer import GRAPH
from omni_jev_worker.scores import Scores, join
from omni_jev_worker.unpadded import token_list

# Of all rows of a pass together, but for a single longer row. More bring nothing on a CPU, and
# attention looks at the square of them.
_PASS_TOKENS: Final = 512
_PASS_ROWS: Final = 64
_OPTIONS: Final = 255


class Session:
    """The pass of one artifact, on the CPU. Used by one thread."""

    def __init__(self, folder: Path, window: int, threads: int) -> None:
        """Load it. Raises what ONNX Runtime raises."""
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        # Threads that spin while they wait steal the core from whoever has work.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(
            str(folder / GRAPH), options, providers=["CPUExecutionProvider"]
        )
        self.reach = Reach(tokens=window, rows=_PASS_ROWS, options=_OPTIONS)

    def __call__(self, items: Sequence[Item]) -> Scores:
        """Run rows, few at a time."""
        return join([self._run(group) for group in groups(items)])

    def _run(self, items: Sequence[Item]) -> Scores:
        # Two options at least: the second best is asked for.
        tokens = token_list(items, least_options=2)
        logits, acts = self._session.run(
            ["logits", "acts"],
            {
                "ids": np.asarray(tokens.ids, dtype=np.int64),
                "positions": tokens.positions,
                "rows": tokens.rows,
                "types": np.asarray(tokens.types, dtype=np.int64),
                "wanted": tokens.wanted,
                "firsts": tokens.firsts,
                "options": tokens.options,
                "present": tokens.present,
            },
        )
        return Scores(logits, acts)


def groups(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    """Cut rows into passes, in their order."""
    start = tokens = 0
    for at, item in enumerate(items):
        length = len(item["ids"])
        if at > start and (tokens + length > _PASS_TOKENS or at - start == _PASS_ROWS):
            yield items[start:at]
            start, tokens = at, 0
        tokens += length
    yield items[start:]

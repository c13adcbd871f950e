"""A graph that ONNX Runtime runs."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnxruntime

from omni_jev_worker.collate import Item
from omni_jev_worker.engines.ort.writer import GRAPH
from omni_jev_worker.engines.passes import groups, reach
from omni_jev_worker.scores import Scores, join
from omni_jev_worker.unpadded import token_list


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
        self.reach = reach(window)

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

"""What is measured: one checkpoint, run by each engine in each precision that works here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from omni_jev_worker.checkpoints import Checkpoint
    from omni_jev_worker.known_answers import KnownAnswers
    from omni_jev_worker.model import Encoded, Model
    from omni_jev_worker.parity import Report
    from omni_jev_worker.tuning import Tuning

TORCH = "torch fp32"
"""The reference, and what ratios are to."""


@dataclass(frozen=True)
class Subject:
    """One way to run the checkpoint."""

    name: str
    model: Model | None
    """None where it could not be run, or the parity gate is shut."""
    parity: Report | None
    """Against the reference; none for that, and for what was not run."""
    reason: str = ""
    """Why it was not run, or what of it is off."""

    def row(self, length: int) -> Encoded:
        """Give one row of so many tokens, padded by nothing; its question takes 30 of them."""
        if self.model is None:
            raise ValueError(f"{self.name} was not run")
        question: dict[str, Any] = {
            "q": {"type": "noul", "instructions": "Does the customer ask for a refund?"}
        }
        encoded = self.model.encode("parcel late box open " * 1000, question)
        if length <= max(encoded.items[0]["markers"]):
            raise ValueError(f"a row of {length} tokens does not hold its question")
        item = encoded.items[0] | {"ids": encoded.items[0]["ids"][:length]}
        return type(encoded)(encoded.ids, encoded.internal, [item], (1,), encoded.lost)


def prepare(
    name: str,
    tuning: Tuning,
    checkpoint: Checkpoint,
    known: KnownAnswers,
    cache: Path,
    *,
    compares: bool,
) -> Subject:
    """Load the checkpoint and have it run in one way, on one thread; or say why it cannot be.

    ``compares`` runs the parity gate though the artifact has passed it already.
    """
    from omni_jev_worker import trial, warmup
    from omni_jev_worker.artifacts.store import Store
    from omni_jev_worker.engines.adoption import Adoption
    from omni_jev_worker.exits import Refusal
    from omni_jev_worker.model import Model
    from omni_jev_worker.tuner import Tuner, Tunes

    if tuning.is_plain:
        model = Model(checkpoint, "cpu")
        tried = trial.prepare(model, warmup.encoded(model), known)
        reason = model.pack()
        if reason is None:
            reason = tried.fault([model.infer([rows])[0] for _, rows in tried.requests])
        if reason is not None:
            model.unpack()
        return Subject(name, model, None, reason or "")
    tuner: Tunes = Tuner(tuning, known=known)
    if tuning.engine != "torch":
        tuner = Adoption(tuning, checkpoint, Store(cache), 1, known, compares=compares)
    model = Model(checkpoint, "cpu", to_be_tuned=True)
    try:
        state = tuner.apply(model)
    except Refusal as refusal:
        return Subject(name, None, None, f"not run: {refusal}")
    # What the gate refuses runs as torch does: its times would be those of torch.
    return Subject(name, None if state.is_less else model, state.parity, "; ".join(state.reasons))

"""The only module that imports laya: a checkpoint on a device, and the three steps of an answer.

`encode` (tokenize; one thread at a time, any thread), `infer` (torch; the engine's thread only) and
`decode` (numbers to answers; any thread) are laya's own functions, taken apart so that tokenizing
does not wait for the device and rows of several requests can share a forward pass. They are
laya's inner functions, which is why laya is pinned.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import numpy as np
import torch
from laya.agent import Agent
from laya.common import collate_items, render_options

from omni_jev_worker.checkpoints import Checkpoint
from omni_jev_worker.exits import bad_configuration

_DEVICE_ORDER: Final = ("cuda", "mps", "cpu")


class Unanswerable(Exception):
    """A question that this checkpoint cannot answer, with the reason for its client."""

    def __init__(self, question: str, reason: str) -> None:
        super().__init__(reason)
        self.question = question
        self.reason = reason


class NotFinite(Exception):
    """The model gave NaN or infinity; that is never sent as an answer."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """A request's rows."""

    ids: tuple[str, ...]
    """The question of each row."""
    internal: dict[str, Any]
    """Laya's form of each question."""
    items: list[dict[str, Any]]
    """Laya's rows: token ids, positions of the options, type."""

    @property
    def tokens(self) -> int:
        """The tokens of all rows together, without padding."""
        return sum(len(item["ids"]) for item in self.items)


@dataclass(frozen=True, slots=True)
class Scores:
    """What the model says about a request's rows."""

    logits: Any
    """Rows by options, float32."""
    act: Any
    """Rows by acts, probabilities."""


def available(device: str) -> bool:
    """Say whether torch can use a device on this machine."""
    if device == "cuda":
        return torch.cuda.is_available()
    if device == "mps":
        return torch.backends.mps.is_available()
    return device == "cpu"


def choose_device(asked: str) -> str:
    """Give the device to use for ``--device``: the one asked for, or the best one there is."""
    if asked != "auto":
        return asked
    return next(device for device in _DEVICE_ORDER if available(device))


def set_threads(threads: int) -> None:
    """Give torch's work on the CPU this many threads."""
    torch.set_num_threads(threads)


class Model:
    """A loaded checkpoint. Made and used for inference on the engine's thread alone."""

    def __init__(self, checkpoint: Checkpoint, device: str) -> None:
        """Load a checkpoint; on a device that is not there it lands on the CPU.

        Raises `Refusal` for a tokenizer that does not fit the weights, and whatever laya and its
        libraries raise.
        """
        self._agent = Agent(str(checkpoint.folder), device=device)
        _check_tokenizer(self._agent, checkpoint.name)
        agent = self._agent
        self._home = (agent.device, agent.dtype, agent.amp_enabled)

    @property
    def device(self) -> str:
        """Where the model is now: laya moves it to the CPU when the device is out of memory."""
        return str(self._agent.device.type)

    def return_to_device(self) -> None:
        """Go back to where the model was loaded, on the engine's thread; raise why it cannot."""
        agent = self._agent
        device, dtype, amp_enabled = self._home
        try:
            agent.model.to(device)
        except RuntimeError:
            # Some of it may have moved.
            agent.model.to(agent.device)
            raise
        agent.device, agent.dtype, agent.amp_enabled = device, dtype, amp_enabled

    @property
    def window(self) -> int:
        """The most tokens that a row can have."""
        return int(self._agent.cfg.get("max_len", 512))

    @property
    def weights_dtype(self) -> str:
        """The type of the weights on the device, such as ``torch.float32``."""
        return str(next(self._agent.model.parameters()).dtype)

    @property
    def autocast_dtype(self) -> str | None:
        """The type of autocast, if laya uses it on this device."""
        return str(self._agent.dtype) if self._agent.amp_enabled else None

    @property
    def mps_amp_min_rows(self) -> int:
        """Rows from which laya autocasts on MPS."""
        return int(self._agent.mps_amp_min_rows)

    def encode(self, state: Any, questions: dict[str, dict[str, Any]]) -> Encoded:
        """Tokenize a checked request. Raises `Unanswerable`."""
        agent = self._agent
        ids = tuple(questions)
        for name, question in questions.items():
            try:
                agent._check_question(name, question)
            except ValueError:
                raise Unanswerable(name, "this question is not one that Laya can answer") from None
        internal = {name: agent._to_internal(question) for name, question in questions.items()}
        try:
            items = agent._encode_state(state, list(ids), internal)
        except ValueError:
            raise self._too_many_options(state, ids, internal) from None
        return Encoded(ids=ids, internal=internal, items=items)

    def infer(self, batch: Sequence[Encoded]) -> list[Scores | NotFinite]:
        """Run the rows of several requests in one forward pass, on the engine's thread."""
        rows = collate_items([encoded.items for encoded in batch], self._agent.tok.pad_token_id)
        with torch.no_grad():
            logits, act = self._agent._forward(rows)
        results: list[Scores | NotFinite] = []
        start = 0
        for encoded in batch:
            end = start + len(encoded.items)
            part = Scores(logits[start:end], act[start:end])
            finite = bool(np.isfinite(part.logits).all() and np.isfinite(part.act).all())
            results.append(part if finite else NotFinite())
            start = end
        return results

    def decode(self, encoded: Encoded, scores: Scores) -> dict[str, Any]:
        """Turn scores into laya's answers, one for each question."""
        answers = self._agent._decode_answers(
            scores.logits, scores.act, encoded.items, list(encoded.ids), encoded.internal, 0
        )
        return cast("dict[str, Any]", answers)

    def _too_many_options(
        self, state: Any, ids: tuple[str, ...], internal: dict[str, Any]
    ) -> Exception:
        """Find which question's options did not fit: laya tells it in prose only."""
        for name in ids:
            try:
                self._agent._encode_state(state, [name], internal)
            except ValueError:
                count = len(render_options(internal[name]))
                reason = (
                    f"{count} options do not fit this checkpoint's window of {self.window} tokens"
                )
                return Unanswerable(name, reason)
        return Unanswerable(ids[0], "this question could not be tokenized")


def _check_tokenizer(agent: Agent, checkpoint: str) -> None:
    """Check what a row is made of: laya's special tokens, and ids that the weights know.

    An id past the embedding is an error in the middle of a request, and on a GPU one after which
    the process cannot use it any more.
    """
    tokenizer = agent.tok
    used = []
    for name in ("cls_token", "sep_token", "mask_token", "pad_token"):
        number = getattr(tokenizer, f"{name}_id")
        if number is None:
            raise bad_configuration(
                f"checkpoint {checkpoint}: tokenizer/tokenizer_config.json names no `{name}`"
            )
        used.append(number)
    # Tokens added to the vocabulary may be there for other models, and mean nothing to this one.
    added = tokenizer.get_added_vocab()
    used.extend(number for text, number in tokenizer.get_vocab().items() if text not in added)
    known = agent.model.encoder.get_input_embeddings().num_embeddings
    if max(used) >= known:
        raise bad_configuration(
            f"checkpoint {checkpoint}: the tokenizer has a token number {max(used)}, "
            f"but the weights know {known} tokens"
        )

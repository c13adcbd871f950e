"""The only module that imports laya: a checkpoint on a device, and the three steps of an answer.

`encode` (tokenize; one thread at a time, any thread), `infer` (torch; the engine's thread only) and
`decode` (numbers to answers; any thread) are laya's own functions, taken apart so that tokenizing
does not wait for the device and rows of several requests can share a forward pass. They are
laya's inner functions, which is why laya is pinned.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, cast

import numpy as np
import torch
from laya.agent import Agent, _amp_context
from laya.common import QTYPES, render_options, serialize_state
from laya.router import Router

from omni_jev_worker import packed
from omni_jev_worker.buckets import EXACT, Buckets
from omni_jev_worker.checkpoints import Checkpoint
from omni_jev_worker.collate import Item, collate
from omni_jev_worker.exits import bad_configuration
from omni_jev_worker.memory import MemoryWatch, give_back_to_system, out_of_memory
from omni_jev_worker.packed import PackedForward
from omni_jev_worker.rows import Lost, RowBuilder, Specials, Text
from omni_jev_worker.scores import NotFinite, Scores, differ

_DEVICE_ORDER: Final = ("cuda", "mps", "cpu")

# Of a probability, between `packed` and laya's own pass; rounding alone makes some 1e-6.
_MOST_DIFFERENCE: Final = 1e-4


class Unanswerable(Exception):
    """A question that this checkpoint cannot answer, with the reason for its client."""

    def __init__(self, question: str, reason: str) -> None:
        super().__init__(reason)
        self.question = question
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Encoded:
    """A request's rows."""

    ids: tuple[str, ...]
    """The questions."""
    internal: dict[str, Any]
    """Laya's form of each question."""
    items: list[dict[str, Any]]
    """Laya's rows: token ids, positions of the options, type."""
    groups: tuple[int, ...]
    """How many rows, one after the other, each question has: more than one for many options."""
    lost: tuple[Lost, ...]
    """What was cut from each question's rows."""

    @property
    def tokens(self) -> int:
        """The tokens of all rows together, without padding."""
        return sum(self.lengths)

    @property
    def lengths(self) -> tuple[int, ...]:
        """The tokens of each row."""
        return tuple(len(item["ids"]) for item in self.items)

    def notes(self) -> dict[str, dict[str, Any]]:
        """Say of each question what Laya's answer does not: what was cut, how many groups."""
        noted: dict[str, dict[str, Any]] = {}
        for name, groups, lost in zip(self.ids, self.groups, self.lost, strict=True):
            note: dict[str, Any] = {}
            if lost:
                note["x_truncated"] = {
                    "state": lost.state,
                    "options": lost.options,
                    "instructions": lost.instructions,
                }
            if groups > 1:
                note["x_option_groups"] = groups
            noted[name] = note
        return noted

    def part(self, rows: Sequence[int]) -> "Encoded":
        """Give some of the rows, to run apart from the others."""
        return replace(self, items=[self.items[row] for row in rows])


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


def route(state: Any, default: str) -> dict[str, Any]:
    """Choose a checkpoint for a state by its language, as laya's router does, and say why.

    ``default`` is for a state whose language cannot be told.
    """
    return dict(Router(default=default).route(state))


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
        self._packed: PackedForward | None = None
        self._lengths_seen: set[int] = set()
        self._rows = _row_builder(agent)

    @property
    def device(self) -> str:
        """Where the model is now: the engine moves it to the CPU when the device has no memory."""
        return str(self._agent.device.type)

    @property
    def lengths_seen(self) -> int:
        """How many different padded lengths have run."""
        return len(self._lengths_seen)

    @property
    def device_bytes(self) -> int:
        """What torch holds of the device's memory, cached or used; 0 on the CPU."""
        if self.device == "cuda":
            return int(torch.cuda.memory_reserved())
        if self.device == "mps":
            return int(torch.mps.driver_allocated_memory())
        return 0

    def release_memory(self) -> None:
        """Give back what torch and the C library cache: on the device, and on the CPU."""
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        elif torch.backends.mps.is_available():
            torch.mps.empty_cache()
        give_back_to_system()

    def move_to_cpu(self) -> None:
        """Go to the CPU, in full precision, as laya does when the device has no memory."""
        agent = self._agent
        agent.model.to("cpu")
        agent.device, agent.dtype, agent.amp_enabled = torch.device("cpu"), torch.float32, False
        self.release_memory()

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

    def most_rows(self, questions: dict[str, dict[str, Any]]) -> int:
        """Give the most rows that checked questions can need, without tokenizing them."""
        return sum(
            self._rows.most_rows(2 if question["type"] == "noul" else len(question["criteria"]))
            for question in questions.values()
        )

    def encode(self, state: Any, questions: dict[str, dict[str, Any]]) -> Encoded:
        """Tokenize a checked request. Raises `Unanswerable`."""
        agent = self._agent
        for name, question in questions.items():
            try:
                # Laya 0.4 refuses blank ids and instructions too, which the protocol allows.
                agent._check_question("q", question | {"instructions": "?"})
            except ValueError:
                raise Unanswerable(name, "this question is not one that Laya can answer") from None
        internal = {name: agent._to_internal(question) for name, question in questions.items()}
        tokens = self._rows.state(serialize_state(state))
        items: list[dict[str, Any]] = []
        groups, lost = [], []
        for form in internal.values():
            text = Text(form["t"], str(form["ins"]), render_options(form))
            rows, cut = self._rows.rows(text, tokens, newest_last=isinstance(state, list))
            kind = QTYPES[form["t"]]
            items.extend({"ids": row.ids, "markers": row.markers, "qtype": kind} for row in rows)
            groups.append(len(rows))
            lost.append(cut)
        return Encoded(tuple(questions), internal, items, tuple(groups), tuple(lost))

    def infer(self, batch: Sequence[Encoded], buckets: Buckets = EXACT) -> list[Scores | NotFinite]:
        """Run the rows of several requests in one forward pass, on the engine's thread.

        Pads them to ``buckets``, and gives the scores of each request's rows. Raises `OutOfMemory`,
        and what torch raises.
        """
        items = [item for encoded in batch for item in encoded.items]
        if self.is_packed and buckets == EXACT:
            self._lengths_seen.add(max(len(item["ids"]) for item in items))
            logits, act = self._run_packed(items)
        else:
            arrays = collate(items, self._agent.tok.pad_token_id, buckets)
            self._lengths_seen.add(arrays["input_ids"].shape[1])
            logits, act = self._run({name: torch.from_numpy(part) for name, part in arrays.items()})
        results: list[Scores | NotFinite] = []
        start = 0
        for encoded in batch:
            end = start + len(encoded.items)
            part = Scores(logits[start:end], act[start:end])
            results.append(part if part.finite else NotFinite())
            start = end
        return results

    def padding_agrees(self, encoded: Encoded, buckets: Buckets) -> bool:
        """Say whether a request has the same answers padded to buckets as without."""
        exact, padded = self.infer([encoded])[0], self.infer([encoded], buckets)[0]
        if isinstance(exact, NotFinite) or isinstance(padded, NotFinite):
            # Both: the checkpoint is at fault, and the warm-up will say so.
            return isinstance(exact, NotFinite)
        most = 1e-3 if self.autocast_dtype is None else 1e-2
        return differ(exact, padded, [len(item["markers"]) for item in encoded.items]) <= most

    @property
    def is_packed(self) -> bool:
        """Whether unpadded rows run through `packed` instead of laya's own pass."""
        return self._packed is not None and self.device == "cpu"

    def pack(self, tried: Sequence[Encoded]) -> str | None:
        """Run through `packed` from now on, if that answers some requests as laya does.

        Gives why not; none if it does. On the engine's thread, and on the CPU alone.
        """
        agent = self._agent
        if agent.amp_enabled:
            return "laya does not run it in full precision"
        made = packed.make(agent.model, self.window)
        if made is None:
            return "it is not of a known form"
        expected = self.infer(tried)
        self._packed = made
        given = self.infer(tried)
        for encoded, one, other in zip(tried, expected, given, strict=True):
            if isinstance(one, NotFinite) or isinstance(other, NotFinite):
                difference = float(isinstance(one, NotFinite) != isinstance(other, NotFinite))
            else:
                options = [len(item["markers"]) for item in encoded.items]
                difference = max(differ(one, other, options), float(abs(one.act - other.act).max()))
            if difference > _MOST_DIFFERENCE:
                self._packed = None
                return f"its answers differ by {difference:.1e} from laya's own pass"
        return None

    def _run_packed(self, items: Sequence[Item]) -> tuple[Any, Any]:
        if self._packed is None:
            raise RuntimeError("the model was not packed")
        with MemoryWatch() as told, torch.inference_mode():
            logits, act = self._packed(items)
            return logits.numpy(), torch.softmax(act.float(), -1).numpy()
        raise told.shortage

    def _run(self, arrays: dict[str, torch.Tensor]) -> tuple[Any, Any]:
        """Run one input on the device that the model is on.

        Laya's own `_forward` moves the model to the CPU for good when memory runs out; here the
        engine decides what happens then.
        """
        agent = self._agent
        rows = arrays["input_ids"].shape[0]
        with MemoryWatch() as told, torch.inference_mode():
            try:
                return self._pass(arrays, amp=agent._amp_enabled_for(rows))
            except RuntimeError as fault:
                if out_of_memory(fault) or not agent._amp_enabled_for(rows):
                    raise
                if agent.device.type not in ("mps", "cpu"):
                    raise
                # As laya does: not each build has autocast for each operation.
                agent.amp_enabled, agent.dtype = False, torch.float32
                return self._pass(arrays, amp=False)
        raise told.shortage

    def _pass(self, arrays: dict[str, torch.Tensor], *, amp: bool) -> tuple[Any, Any]:
        agent = self._agent
        with _amp_context(agent.device, agent.dtype, amp):
            logits, act = agent.model(**{k: part.to(agent.device) for k, part in arrays.items()})
        # Copied to the CPU in the same try: a GPU tells of its failures only here.
        return logits.float().cpu().numpy(), torch.softmax(act.float(), -1).cpu().numpy()

    def decode(self, encoded: Encoded, scores: Scores) -> dict[str, Any]:
        """Turn scores into laya's answers, one for each question."""
        items = encoded.items
        if len(items) > len(encoded.ids):
            items, scores = _join_groups(encoded, scores)
        answers = self._agent._decode_answers(
            scores.logits, scores.act, items, list(encoded.ids), encoded.internal, 0
        )
        return cast("dict[str, Any]", answers)


def _join_groups(encoded: Encoded, scores: Scores) -> tuple[list[dict[str, Any]], Scores]:
    """Make one row of the rows of each question, as if its options had fitted one.

    The logits stand side by side as they are; the acts are those of the row with the best option.
    """
    items: list[dict[str, Any]] = []
    logits, acts = [], []
    first = 0
    for groups in encoded.groups:
        rows = range(first, first + groups)
        counts = [len(encoded.items[row]["markers"]) for row in rows]
        parts = [scores.logits[row, :count] for row, count in zip(rows, counts, strict=True)]
        joined = np.concatenate(parts)
        best = max(rows, key=lambda row: parts[row - rows.start].max())
        items.append({"markers": range(len(joined)), "ids": []})
        logits.append(joined)
        acts.append(scores.act[best])
        first += groups
    most = max(map(len, logits))
    padded = [np.pad(row, (0, most - len(row))) for row in logits]
    return items, Scores(np.stack(padded), np.stack(acts))


def _row_builder(agent: Agent) -> RowBuilder:
    tokenizer = agent.tok

    def tokenize(texts: list[str]) -> list[list[int]]:
        # Untruncated: what is cut is counted. (Over the model's length it would log a warning.)
        encoded = tokenizer(texts, add_special_tokens=False, verbose=False)
        return cast("list[list[int]]", encoded["input_ids"])

    specials = Specials(
        tokenizer.cls_token_id,
        tokenizer.sep_token_id,
        tokenizer.mask_token_id,
        tokenizer.mask_token,
    )
    return RowBuilder(
        tokenize,
        specials,
        window=int(agent.cfg.get("max_len", 512)),
        head=int(agent.cfg.get("head_max_len", 192)),
        keep_ends=tokenizer.truncation_side == "left",
    )


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

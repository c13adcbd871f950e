"""The only module that imports laya: a checkpoint on a device, and the three steps of an answer.

`encode` (tokenize; one thread at a time, any thread), `infer` (torch; the engine's thread only) and
`decode` (numbers to answers; any thread) are laya's own functions, taken apart so that tokenizing
does not wait for the device and rows of several requests can share a forward pass. They are
laya's inner functions, which is why laya is pinned.
"""

import gc
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Any, Final

import numpy as np
import torch
from laya import lang
from laya.agent import Agent
from laya.common import QTYPES, amp_dtype, render_options, serialize_state, temp_bucket
from laya.router import Router
from numpy.typing import NDArray

from omni_jev_worker import accelerator, embedding, language, log, packed, shortlist
from omni_jev_worker.answers import Decoder, decoder_for, temperature_of
from omni_jev_worker.buckets import EXACT, Buckets
from omni_jev_worker.checkpoints import WEIGHTS, Checkpoint
from omni_jev_worker.encoded import Encoded as Encoded
from omni_jev_worker.encoded import Started, join_groups
from omni_jev_worker.encoded import Unanswerable as Unanswerable
from omni_jev_worker.engines.forward import Foreign
from omni_jev_worker.engines.names import TORCH
from omni_jev_worker.laya_pass import LayaPass
from omni_jev_worker.memory import MemoryWatch
from omni_jev_worker.network.device_pass import DevicePass
from omni_jev_worker.network.layouts import UnpaddedLayout
from omni_jev_worker.packed import PackedForward
from omni_jev_worker.placement import Placement
from omni_jev_worker.rows import Text
from omni_jev_worker.scores import NotFinite, Scores, differ
from omni_jev_worker.tokenizing import check_tokenizer, row_builder
from omni_jev_worker.tuned import Tuned
from omni_jev_worker.tuning import Tuning
from omni_jev_worker.versions import TESTED

# Not laya's own `Router`, which takes longer for a state than the tokenizer does.
_ROUTER: Final[type[Router]] = (
    language.router_with(language.analysis_of(lang), Router)
    if version("laya") == TESTED["laya"]
    else Router
)

_DEVICE_ORDER: Final = ("cuda", "mps", "cpu")

# Options that are embedded, of some ten tokens each, to a row of the queue's.
_OPTIONS_A_ROW: Final = 8


available = accelerator.is_available


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
    return dict(_ROUTER(default=default).route(state))


class Model:
    """A loaded checkpoint. Made and used for inference on the engine's thread alone."""

    def __init__(self, checkpoint: Checkpoint, device: str, *, to_be_tuned: bool = False) -> None:
        """Load a checkpoint; on a device that is not there it lands on the CPU.

        One that is `to_be_tuned` waits on the CPU for that. Raises `Refusal` for a tokenizer that
        does not fit the weights, and whatever laya and its libraries raise.
        """
        waits = to_be_tuned and accelerator.is_available(device)
        self._agent = Agent(str(checkpoint.folder), device="cpu" if waits else device)
        check_tokenizer(self._agent, checkpoint.name)
        agent = self._agent
        self._placement = Placement(agent, checkpoint.folder / WEIGHTS)
        if waits:
            self._placement.adopt(
                torch.device(device), amp_dtype(agent.cfg.get("amp_dtype", "fp16"))
            )
        self._laya = LayaPass(agent)
        self._packed: PackedForward | None = None
        self._tuned: Tuned | None = None
        self._foreign: Foreign | None = None
        self._lengths_seen: set[int] = set()
        self._rows = row_builder(agent)
        self._decode = decoder_for(agent, QTYPES, temp_bucket)
        if not isinstance(self._decode, Decoder):
            log.warning("answers are made laya's own, longer way: the shorter one differs here")

    @property
    def device(self) -> str:
        """Where the model is now: the engine moves it to the CPU when the device has no memory."""
        if self._foreign is not None:
            return self._foreign.device
        return str(self._agent.device.type)

    @property
    def home(self) -> str:
        """The device that the model was loaded for, if it could be had."""
        return self._placement.home if self._foreign is None else self._foreign.device

    @property
    def lengths_seen(self) -> int:
        """How many different padded lengths have run."""
        return len(self._lengths_seen)

    @property
    def device_bytes(self) -> int:
        """What torch holds of the device's memory, cached or used; 0 on the CPU."""
        return self._placement.held_bytes

    def release_memory(self) -> None:
        """Give back what torch and the C library cache: on the device, and on the CPU."""
        self._placement.release_memory()

    def move_to_cpu(self) -> None:
        """Go to the CPU, in full precision, as laya does when the device has no memory."""
        if self._tuned is not None:
            self._tuned.leave()
        self._placement.leave()

    def return_to_device(self) -> None:
        """Go back to where the model was loaded, on the engine's thread; raise why it cannot."""
        if self._foreign is not None:
            return
        if self._tuned is not None:
            self._tuned.go_home()
        else:
            self._placement.go_home()

    def tune(self, tuning: Tuning) -> None:
        """Run from now on as the network does, in some precision, compiled or not.

        Whatever compiles or is recorded does so at first use, or in `prepare`. Raises `CannotTune`,
        and what torch raises.
        """
        self._placement.restore()
        self._tuned = None
        tuned = Tuned(self._agent, self._placement, self.window, tuning)
        tuned.go_home()
        self._tuned = tuned

    def untune(self) -> None:
        """Run as laya does again."""
        self._tuned = None
        self._placement.restore()
        self._placement.go_home(torch.float32)

    def export(self, write: Callable[[Any], None]) -> None:
        """Give laya's model, in full precision on the CPU, to what writes it in another form."""
        self._placement.restore()
        with torch.inference_mode():
            write(self._agent.model)

    def adopt(self, foreign: Foreign | None) -> None:
        """Run rows through another library than torch from now on; none is torch again."""
        self._foreign = foreign

    @property
    def can_embed(self) -> bool:
        """Whether texts can be embedded: that is done by torch's own encoder alone."""
        return self._agent.model is not None

    def drop_torch(self) -> None:
        """Give the memory of torch's weights back: another library has its own."""
        self._packed = None
        self._agent.model = None
        gc.collect()
        self.release_memory()

    def unload(self) -> None:
        """Give the memory back. Nothing but the tokenizer's side can be used from then on."""
        self._tuned = self._packed = self._foreign = None
        self._agent.model = None
        gc.unfreeze()
        gc.collect()
        self.release_memory()

    def prepare(self, rows: Sequence[Encoded]) -> None:
        """Run what is compiled at a first call, and record what is recorded."""
        device_pass = self._device_pass
        for encoded in rows:
            self.infer([encoded])
        self.infer(rows)
        if device_pass is not None and self.runs_compiled:
            for shape in device_pass.layout.samples():
                compiled = device_pass.choose_head(shape)
                how = "compiled" if compiled else "as it is, which is faster here"
                which = "several rows" if shape.rows > 1 else "one row"
                log.info(f"laya's head runs {how}, for {which}", phase="compile")
        if device_pass is not None:
            for shape in device_pass.layout.usual():
                device_pass.prepare(shape)
        # Running shapes to record them took memory that only one of them needs from now on.
        self.release_memory()

    @property
    def _device_pass(self) -> DevicePass | None:
        return self._tuned.device_pass if self._tuned is not None else None

    @property
    def is_tuned(self) -> bool:
        """Whether rows run through the network on this device, and not on the CPU after a loss."""
        return self._device_pass is not None

    @property
    def engine(self) -> str:
        """The name of what runs rows."""
        return TORCH if self._foreign is None else self._foreign.engine

    @property
    def artifact(self) -> str | None:
        """The hash of the artifact that runs rows; none where that is torch."""
        return None if self._foreign is None else self._foreign.artifact

    def takes(self, encoded: Encoded) -> bool:
        """Say whether what runs rows takes all of a request's."""
        return self._foreign is None or all(
            len(item["ids"]) <= self._foreign.forward.reach.tokens
            and len(item["markers"]) <= self._foreign.forward.reach.options
            for item in encoded.items
        )

    @property
    def takes_any_lengths(self) -> bool:
        """Whether rows of unlike lengths share a pass without padding."""
        if self._foreign is not None:
            return True
        if self._device_pass is None:
            return self.is_packed
        return isinstance(self._device_pass.layout, UnpaddedLayout)

    @property
    def runs_compiled(self) -> bool:
        """Whether compiled code runs now."""
        return self._tuned is not None and self._tuned.runs_compiled

    def stop_compiling(self) -> None:
        """Run the same code uncompiled from now on."""
        if self._tuned is not None:
            self._tuned.stop_compiling()

    @property
    def recorded_graphs(self) -> int:
        """How many shapes have been recorded on the device."""
        return self._device_pass.recorded if self._device_pass is not None else 0

    def end_compiler(self) -> None:
        """End the compiler's processes, if there are any."""
        compiler = sys.modules.get("omni_jev_worker.network.compiled")
        if compiler is not None:
            compiler.end_processes()

    @property
    def compiled_graphs(self) -> int:
        """How many pieces of code the compiler has made in this process."""
        compiler = sys.modules.get("omni_jev_worker.network.compiled")
        return int(compiler.graphs()) if compiler is not None else 0

    @property
    def window(self) -> int:
        """The most tokens that a row can have."""
        return int(self._agent.cfg.get("max_len", 512))

    @property
    def weights_dtype(self) -> str:
        """The type of the weights on the device, such as ``torch.float32``."""
        if self._foreign is not None:
            return self._foreign.weights
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
        return sum(map(self._most_rows, questions.values()))

    def _most_rows(self, question: dict[str, Any]) -> int:
        if question["type"] == "noul":
            return self._rows.most_rows(2)
        options = len(question["criteria"])
        kept = question.get(shortlist.FIELD, options)
        if kept >= options:
            return self._rows.most_rows(options)
        # The state is a row too, and some options together are as long as one.
        return self._rows.most_rows(kept) + 1 + options // _OPTIONS_A_ROW

    def texts(self, state: Any, question: dict[str, Any]) -> tuple[str, list[str]]:
        """Give what a shortlist compares: the state with the instructions, and each option.

        The texts are those of laya's ``shortlist_choice``.
        """
        form = self._agent._to_internal(question)
        body = serialize_state(state)
        query = f"{form['ins']}\n{body}" if question["instructions"] else body
        return query, list(render_options(form | {"ins": ""}))

    def encode_texts(self, states: Sequence[str], options: Sequence[str]) -> Encoded:
        """Tokenize texts into rows to be embedded: the states', then the options'."""
        rows = [self._rows.text(text, is_option=False) for text in states]
        rows += [self._rows.text(text, is_option=True) for text in options]
        items = [{"ids": ids, "markers": [], "qtype": 0} for ids in rows]
        return Encoded((), {}, items, (), (), embeds=True)

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
        return self.start(batch, buckets).results()

    def start(self, batch: Sequence[Encoded], buckets: Buckets = EXACT) -> "Started":
        """Start such a pass; where the device works by itself, this does not wait for it."""
        items = [item for encoded in batch for item in encoded.items]
        with MemoryWatch() as told:
            if batch[0].embeds:
                return Started(self._embed(items), batch)
            return Started(self._start(items, buckets), batch)
        raise told.shortage

    def _embed(self, items: list[dict[str, Any]]) -> Callable[[], Scores]:
        """Embed rows of texts. Their vectors go the way of scores, and act for nothing."""
        vectors = embedding.embed(self._agent, items)
        nothing = np.zeros((len(items), 1), dtype=np.float32)
        return lambda: Scores(vectors, nothing)

    def _start(self, items: list[dict[str, Any]], buckets: Buckets) -> Callable[[], Scores]:
        if self._foreign is not None:
            self._lengths_seen.add(max(len(item["ids"]) for item in items))
            found = self._foreign.forward(items)
            return lambda: found
        if self._device_pass is not None:
            running = self._device_pass.start(items)
            self._lengths_seen.add(running.shape.length)
            return running.result
        packed_pass = self._packed_pass
        if packed_pass is not None and buckets == EXACT:
            self._lengths_seen.add(max(len(item["ids"]) for item in items))
            scores = packed_pass.run(items)
        else:
            length, scores = self._laya.run(items, buckets)
            self._lengths_seen.add(length)
        return lambda: scores

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
        return self._packed_pass is not None

    @property
    def _packed_pass(self) -> PackedForward | None:
        if self.device != "cpu":
            return None
        return self._tuned.packed if self._tuned is not None else self._packed

    def pack(self) -> str | None:
        """Run through `packed` from now on, which `trial` then holds against laya's own pass.

        Gives why not; none if it does. On the engine's thread, and on the CPU alone.
        """
        if self._agent.amp_enabled:
            return "laya does not run it in full precision"
        self._packed = packed.make(self._agent.model, self.window)
        return "it is not of a known form" if self._packed is None else None

    def unpack(self) -> None:
        """Run as laya does again."""
        self._packed = None

    def probabilities(self, encoded: Encoded, scores: Scores) -> list[NDArray[np.float64]]:
        """Give each row's probabilities of its options, as calibrated as an answer's, unrounded."""
        found = []
        for row, item in enumerate(encoded.items):
            options = len(item["markers"])
            calibrated = scores.logits[row, :options].astype(np.float64)
            calibrated /= temperature_of(self._agent, item["qtype"], options, temp_bucket)
            powers = np.exp(calibrated - calibrated.max())
            found.append(powers / powers.sum())
        return found

    def decode(self, encoded: Encoded, scores: Scores) -> dict[str, Any]:
        """Turn scores into laya's answers, one for each question."""
        options = [len(item["markers"]) for item in encoded.items]
        if len(options) > len(encoded.ids):
            options, scores = join_groups(encoded, scores)
        return self._decode(scores.logits, scores.act, options, encoded.internal)

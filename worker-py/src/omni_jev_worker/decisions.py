"""The way of a checked request to its answer: which checkpoint, in what time, and through what."""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from omni_jev_worker import shortlist
from omni_jev_worker.engine import Engine, InferenceFailed
from omni_jev_worker.lane import Lane
from omni_jev_worker.pool import CheckpointPool
from omni_jev_worker.protocol import problems, render
from omni_jev_worker.protocol.dialects import JEV
from omni_jev_worker.protocol.request import Request
from omni_jev_worker.queue import Job, QueueClosed, QueueFull, RowQueue
from omni_jev_worker.reader import Landing, Reader
from omni_jev_worker.routing import Routing

_TIMEOUT: Final = "timeout_error"


@dataclass(frozen=True, slots=True)
class Decision:
    """An answer's body, and what it took."""

    body: dict[str, Any]
    timing: bytes = b""
    """The value of `server-timing`; empty where another process has answered."""


class Decisions:
    """Answers requests. Used on the event loop alone."""

    def __init__(
        self,
        engine: Engine,
        queue: RowQueue,
        routing: Routing,
        pool: CheckpointPool,
        *,
        dialect: str,
        reject_truncated: bool,
        request_timeout: float | None,
        lane: Lane,
    ) -> None:
        self._engine = engine
        self._queue = queue
        self._routing = routing
        self._pool = pool
        self._dialect = dialect
        self._reject_truncated = reject_truncated
        self._request_timeout = request_timeout
        self._lane = lane
        self._reader = Reader()
        self._vectors = shortlist.Vectors()
        self._landing: Landing | None = None
        self._under_way = 0

    async def decide(self, asked: Request) -> "Decision":
        """Answer a checked request in its time. Raises `Problem`.

        Cancelled when its client leaves, at whatever step it is; so is the work of one that takes
        too long.
        """
        self._under_way += 1
        try:
            if self._request_timeout is None:
                return await self._decide_at_leisure(asked)
            async with asyncio.timeout(self._request_timeout):
                return await self._decide_at_leisure(asked)
        except TimeoutError:
            message = f"no answer within the worker's {self._request_timeout:g} s"
            raise problems.refused(504, _TIMEOUT, message) from None
        finally:
            self._under_way -= 1

    async def _decide_at_leisure(self, asked: Request) -> "Decision":
        begun = time.monotonic()
        self._lane.check_questions(len(asked.questions))
        default = self._engine.snapshot.model.name
        chosen = self._routing.by_name(asked.model)
        try:
            if chosen is None or chosen["model"] == default:
                with self._queue.admit(self._engine.model.most_rows(asked.questions)):
                    way = await self._go(asked, chosen)
                    chosen = way.answered_by
                    if way.job is not None:
                        body = self._answer(way.job, chosen, way.narrowed)
                        return Decision(body, _timing(way.job, begun))
        except QueueFull as full:
            raise problems.overloaded(
                "too many questions are waiting for this worker", full.retry_after
            ) from None
        except QueueClosed:
            raise problems.overloaded("this worker is stopping", 1) from None
        except InferenceFailed:
            raise problems.internal() from None
        answer = await self._pool.decide(chosen["model"], asked)
        answer["x_routing" if self._dialect == JEV else "routing"] = chosen
        return Decision(answer)

    async def _go(self, asked: Request, chosen: dict[str, Any] | None) -> "_Way":
        """Bring an admitted request through the reading thread and the engine's.

        One whose options are to be narrowed goes twice: first its texts are embedded.
        """
        if chosen is None and not self._routing.reads_states:
            chosen = self._routing.by_state(asked.state)
        way = await self._travel(asked, chosen, {})
        if way.plan is None or way.job is None:
            return way
        rows = way.job.result.result().logits
        narrowed = way.plan.narrow(asked.questions, rows, self._vectors)
        return await self._travel(asked, way.answered_by, narrowed)

    async def _travel(
        self,
        asked: Request,
        chosen: dict[str, Any] | None,
        narrowed: dict[str, shortlist.Narrowed],
    ) -> "_Way":
        """Go there and back once; the way's end says how far it came."""
        loop = asyncio.get_running_loop()
        if self._landing is None or self._landing.loop is not loop:
            self._landing = Landing(loop)
        way = _Way(asked, chosen, self._landing, loop.create_future(), narrowed)
        alone = self._under_way == 1
        self._reader.read(lambda: self._read(way), characters=asked.characters, alone=alone)
        try:
            await way.end
        except asyncio.CancelledError:
            way.give_up()
            raise
        if way.fault is not None:
            raise _unanswerable(way.fault)
        return way

    def _read(self, way: "_Way") -> None:
        """Choose the checkpoint, and hand the tokens to the engine if it is the default."""
        if way.given_up:
            return
        try:
            if way.chosen is None:
                way.chosen = self._routing.by_state(way.asked.state)
            name = way.chosen["model"]
            if name == self._engine.snapshot.model.name:
                self._hand_over(way, name)
                return
        except Exception as fault:
            way.fault = fault
        way.landing.land(way.end)

    def _hand_over(self, way: "_Way", name: str) -> None:
        encoded = self._rows_of(way)
        embeds = way.plan is not None
        if not embeds:
            if not self._engine.model.takes(encoded):
                raise problems.misdirected("this worker's engine does not take so long a row")
            options = [len(each["markers"]) for each in encoded.items]
            self._lane.check_rows(encoded.lengths, options)
        job = Job(checkpoint=name, encoded=encoded, lengths=encoded.lengths, embeds=embeds)
        self._queue.put(job)
        way.job = job
        job.result.add_done_callback(lambda _: way.landing.land(way.end))
        if way.given_up:
            # In the meantime: whoever gave up saw no job.
            job.result.cancel()

    def _rows_of(self, way: "_Way") -> Any:
        """Give the rows to run next: those of texts to be embedded, or of the questions."""
        model, asked = self._engine.model, way.asked
        if not way.narrowed and any(shortlist.FIELD in q for q in asked.questions.values()):
            if not model.can_embed and shortlist.wanted(asked.questions):
                raise problems.misdirected(
                    f"this worker's engine has no vectors for {shortlist.FIELD}"
                )
            way.plan = shortlist.plan(model, asked.state, asked.questions, self._vectors)
            if way.plan is not None:
                return way.plan.encoded
        way.narrowed |= shortlist.unnarrowed(asked.questions)
        narrower = {name: narrowed.question for name, narrowed in way.narrowed.items()}
        encoded = model.encode(asked.state, asked.questions | narrower)
        if self._reject_truncated:
            problems.refuse_truncated(encoded.notes())
        return encoded

    def _answer(
        self, job: Job, routing: dict[str, Any], narrowed: Mapping[str, shortlist.Narrowed]
    ) -> dict[str, Any]:
        encoded = job.encoded
        answers = self._engine.model.decode(encoded, job.result.result())
        notes = encoded.notes()
        for name, what in narrowed.items():
            answers[name] = what.widen(answers[name])
            notes[name] |= what.note()
        return render.decision(answers, notes, encoded.tokens, routing, self._dialect)


@dataclass(slots=True, eq=False)
class _Way:
    """A request on its way to the engine and back."""

    asked: Request
    chosen: dict[str, Any] | None
    """Which checkpoint answers and why; none while only the state can tell."""
    landing: Landing
    end: "asyncio.Future[None]"
    """Ends when the scores are there, when there is a fault, or when another checkpoint answers."""
    narrowed: dict[str, shortlist.Narrowed]
    """What became of questions whose options were to be narrowed, by their ids."""
    plan: shortlist.Plan | None = None
    """What the job embeds, where it does not answer yet."""
    job: Job | None = None
    fault: Exception | None = None
    given_up: bool = False

    @property
    def answered_by(self) -> dict[str, Any]:
        """Who answers, and why. Only after the way's end."""
        if self.chosen is None:
            raise RuntimeError("nobody was chosen")
        return self.chosen

    def give_up(self) -> None:
        """Let nothing more be done."""
        self.given_up = True
        if self.job is not None:
            self.job.result.cancel()


def _timing(job: Job, begun: float) -> bytes:
    """Say in ms how long a request was tokenized, waited, and was computed, until now.

    https://www.w3.org/TR/server-timing/
    """
    return b"prepare;dur=%.2f, queue;dur=%.2f, model;dur=%.2f" % (
        1000 * (job.queued_at - begun),
        1000 * (job.begun_at - job.queued_at),
        1000 * (time.monotonic() - job.begun_at),
    )


def _unanswerable(fault: Exception) -> Exception:
    question = getattr(fault, "question", None)
    reason = getattr(fault, "reason", None)
    if question is None or reason is None:
        return fault
    return problems.invalid(("questions", question, "criteria"), reason, "unanswerable")

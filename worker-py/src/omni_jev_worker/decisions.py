"""The way of a checked request to its answer: which checkpoint, in what time, and through what."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from omni_jev_worker.bodies import catching
from omni_jev_worker.engine import Engine, InferenceFailed
from omni_jev_worker.pool import CheckpointPool
from omni_jev_worker.protocol import problems, render
from omni_jev_worker.protocol.dialects import JEV
from omni_jev_worker.protocol.request import Request
from omni_jev_worker.queue import Job, QueueClosed, QueueFull, RowQueue
from omni_jev_worker.routing import Routing

_TIMEOUT: Final = "timeout_error"


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
    ) -> None:
        self._engine = engine
        self._queue = queue
        self._routing = routing
        self._pool = pool
        self._dialect = dialect
        self._reject_truncated = reject_truncated
        self._request_timeout = request_timeout
        # One thread owns the tokenizer: shared by threads it raises "Already borrowed".
        self._encoder = ThreadPoolExecutor(1, thread_name_prefix="encode")

    async def decide(self, asked: Request) -> dict[str, Any]:
        """Answer a checked request in its time. Raises `Problem`.

        Cancelled when its client leaves, at whatever step it is; so is the work of one that takes
        too long.
        """
        try:
            async with asyncio.timeout(self._request_timeout):
                return await self._decide_at_leisure(asked)
        except TimeoutError:
            message = f"no answer within the worker's {self._request_timeout:g} s"
            raise problems.refused(504, _TIMEOUT, message) from None

    async def _decide_at_leisure(self, asked: Request) -> dict[str, Any]:
        default = self._engine.snapshot.model.name
        chosen = self._routing.by_name(asked.model)
        try:
            if chosen is None or chosen["model"] == default:
                with self._queue.admit(self._engine.model.most_rows(asked.questions)):
                    if chosen is None:
                        chosen = await self._by_state(asked.state)
                    if chosen["model"] == default:
                        return await self._by_default(asked, chosen)
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
        return answer

    async def _by_state(self, state: Any) -> dict[str, Any]:
        if not self._routing.reads_states:
            return self._routing.by_state(state)
        # Finding out a long text's language takes tens of milliseconds.
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._encoder, self._routing.by_state, state)

    async def _by_default(self, asked: Request, routing: dict[str, Any]) -> dict[str, Any]:
        """Answer an admitted request by the default checkpoint."""
        model = self._engine.model
        encoded = await asyncio.get_running_loop().run_in_executor(
            self._encoder, catching(model.encode), asked.state, asked.questions
        )
        if isinstance(encoded, Exception):
            raise _unanswerable(encoded)
        notes = encoded.notes()
        if self._reject_truncated:
            problems.refuse_truncated(notes)
        job = Job(checkpoint=routing["model"], encoded=encoded, lengths=encoded.lengths)
        self._queue.put(job)
        scores = await asyncio.wrap_future(job.result)
        answers = model.decode(encoded, scores)
        return render.decision(answers, notes, encoded.tokens, routing, self._dialect)


def _unanswerable(fault: Exception) -> Exception:
    question = getattr(fault, "question", None)
    reason = getattr(fault, "reason", None)
    if question is None or reason is None:
        return fault
    return problems.invalid(("questions", question, "criteria"), reason, "unanswerable")

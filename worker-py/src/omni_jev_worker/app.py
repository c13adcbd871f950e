"""The HTTP application: ``POST /v1/systemone``, ``GET /v1/models``, ``GET /health``.

``GET /openapi.json`` describes them. The supervisor has a route of its own,
``POST /control/recover-device``.
"""

import asyncio
import hmac
from collections.abc import Coroutine, Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive

from omni_jev_worker import batch, bodies, health
from omni_jev_worker.decisions import Decisions
from omni_jev_worker.engine import Engine
from omni_jev_worker.pool import CheckpointPool
from omni_jev_worker.protocol import decode, openapi, problems, render, request
from omni_jev_worker.protocol.dialects import LAYA
from omni_jev_worker.protocol.limits import Limits
from omni_jev_worker.protocol.problems import Problem
from omni_jev_worker.queue import QueueClosed, RowQueue
from omni_jev_worker.routing import Routing


class App:
    """The handlers and what they need. `asgi` is the application, without its envelope."""

    def __init__(
        self,
        engine: Engine,
        queue: RowQueue,
        routing: Routing,
        pool: CheckpointPool,
        *,
        instance: str,
        api_key: bytes | None,
        control_token: bytes | None = None,
        limits: Limits | None = None,
        request_timeout: float | None = None,
        dialect: str = LAYA,
        reject_truncated: bool = False,
    ) -> None:
        self._engine = engine
        self._queue = queue
        self._instance = instance
        self._api_key = api_key
        self._pool = pool
        self._control_token = control_token
        self._limits = limits if limits is not None else Limits()
        self._parser = bodies.Parser(self._limits, dialect)
        self._decisions = Decisions(
            engine,
            queue,
            routing,
            pool,
            dialect=dialect,
            reject_truncated=reject_truncated,
            request_timeout=request_timeout,
        )
        self.draining = False
        self.asgi = _Application(
            routes=[
                Route("/health", self._health, methods=["GET"]),
                Route("/v1/models", self._models, methods=["GET"]),
                Route("/v1/systemone", self._systemone, methods=["POST"]),
                Route("/v1/systemone/batch", self._batch, methods=["POST"]),
                Route("/openapi.json", _openapi, methods=["GET"]),
                Route("/control/recover-device", self._recover_device, methods=["POST"]),
            ],
            exception_handlers={Problem: _answer_problem, HTTPException: _answer_http},
        )
        self.asgi.router.redirect_slashes = False

    async def _health(self, _: Request) -> Response:
        body = health.report(
            self._engine.snapshot,
            self._queue.state(),
            self._pool.state(),
            instance=self._instance,
            draining=self.draining,
        )
        return _json(200, body, [(b"cache-control", b"no-store")])

    async def _models(self, http: Request) -> Response:
        self._authenticate(http)
        default = self._engine.snapshot.model
        known = {default.name: default.to_json(), **self._pool.state().models}
        models = [
            {
                "name": name,
                "description": model.get("note", model["checkpoint"]),
                "release_date": model["released"],
            }
            for name, model in known.items()
        ]
        return _json(200, {"models": models})

    async def _systemone(self, http: Request) -> Response:
        self._authenticate(http)
        body = await bodies.read(http, self._limits)
        codings = decode.codings(http.headers.getlist("content-encoding"))
        return await _unless_gone(http.receive, self._answer(body, codings))

    async def _answer(self, body: bytes, codings: Sequence[str]) -> Response:
        asked = await self._parser.understand(body, codings, request.check)
        return _json(200, await self._decisions.decide(asked))

    async def _batch(self, http: Request) -> Response:
        self._authenticate(http)
        body = await bodies.read(http, self._limits)
        codings = decode.codings(http.headers.getlist("content-encoding"))
        return await _unless_gone(http.receive, self._answer_batch(body, codings))

    async def _answer_batch(self, body: bytes, codings: Sequence[str]) -> Response:
        asked = await self._parser.understand(body, codings, request.check_batch)
        rows = self._engine.model.most_rows(asked.questions)
        width = batch.width(self._queue.state().capacity, rows)
        results = await batch.decide_each(asked, self._decisions.decide, width)
        return _json(200, render.batch(results))

    async def _recover_device(self, http: Request) -> Response:
        """Return to the device that was lost, for the supervisor alone.

        The frontend forwards every path, so a client can ask for this one; without the token, which
        only the supervisor has, it is not there.
        """
        given = next((v for k, v in http.scope["headers"] if k == b"x-omni-jev-control"), b"")
        if self._control_token is None or not hmac.compare_digest(given, self._control_token):
            raise HTTPException(404)
        try:
            reason = await asyncio.wrap_future(self._engine.recover_device())
            others = await self._pool.recover_device()
            reason = reason if reason is not None else others
        except QueueClosed:
            raise problems.overloaded("this worker is stopping", 1) from None
        return _json(200, {"recovered": reason is None, "reason": reason})

    def _authenticate(self, http: Request) -> None:
        if self._api_key is None:
            return
        # Bytes, not text: a header may hold any byte, and a comparison of texts raises on some.
        header = next((v for k, v in http.scope["headers"] if k == b"authorization"), b"")
        scheme, _, key = header.partition(b" ")
        if not hmac.compare_digest(key.strip(), self._api_key) or scheme.lower() != b"bearer":
            missing = "missing" if not header else "invalid"
            raise problems.refused(
                401,
                problems.AUTHENTICATION,
                f"{missing} bearer key",
                [(b"www-authenticate", b"Bearer")],
            )


async def _openapi(_: Request) -> Response:
    return Response(openapi.page(), media_type="application/json")


class _Application(Starlette):
    """Starlette without its own answer to the unexpected, which is plain text: ours is JSON."""

    def build_middleware_stack(self) -> ASGIApp:
        """Answer the faults that have a handler; let the others through to the envelope."""
        return ExceptionMiddleware(self.router, handlers=self.exception_handlers)


async def _unless_gone(receive: Receive, work: Coroutine[Any, Any, Response]) -> Response:
    """Run the work, or cancel it when the client closes its connection.

    Nobody would read the answer, and a client that gave up sends the same again: computing both
    makes one slow request three.
    """
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_disconnected(receive))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ClientDisconnect
    finally:
        for pending in (task, gone):
            pending.cancel()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _json(status: int, body: Any, headers: Any = ()) -> Response:
    response = Response(render.to_json(body), status, media_type="application/json")
    response.raw_headers.extend(headers)
    return response


async def _answer_problem(_: Request, problem: Exception) -> Response:
    if not isinstance(problem, Problem):
        raise problem
    return _json(problem.status, problem.body, problem.headers)


async def _answer_http(_: Request, fault: Exception) -> Response:
    """Answer what the router refuses: no such route, or not with this method."""
    if not isinstance(fault, HTTPException):
        raise fault
    headers = [(k.lower().encode(), v.encode()) for k, v in (fault.headers or {}).items()]
    if fault.status_code == 404:
        return _json(404, {"detail": "Not Found"}, headers)
    problem = problems.refused(fault.status_code, problems.INVALID_REQUEST, fault.detail)
    return _json(problem.status, problem.body, headers)

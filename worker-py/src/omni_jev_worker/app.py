"""The HTTP application: ``POST /v1/systemone``, ``GET /v1/models``, ``GET /health``.

``GET /openapi.json`` describes them. The supervisor has a route of its own,
``POST /control/recover-device``.
"""

import asyncio
import hmac
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from starlette.routing import Route, Router

from omni_jev_worker import batch, bodies, health
from omni_jev_worker.decisions import Decisions
from omni_jev_worker.engine import Engine
from omni_jev_worker.http import ClientGone, Header, Receive, Request, Response, Scope, Send
from omni_jev_worker.lane import Lane
from omni_jev_worker.pool import CheckpointPool
from omni_jev_worker.protocol import decode, openapi, problems, render, request
from omni_jev_worker.protocol.dialects import LAYA
from omni_jev_worker.protocol.limits import Limits
from omni_jev_worker.protocol.problems import Problem
from omni_jev_worker.queue import QueueClosed, RowQueue
from omni_jev_worker.routing import Routing, headers_of


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
        lane: Lane | None = None,
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
            lane=lane if lane is not None else Lane(),
        )
        self.draining = False
        self.background: health.Background | None = None
        """What compiles meanwhile, if anything does."""
        self.routes: Mapping[str, Mapping[str, Handler]] = {
            "/v1/systemone": {"POST": self._systemone},
            "/health": {"GET": self._health},
            "/v1/models": {"GET": self._models},
            "/v1/systemone/batch": {"POST": self._batch},
            "/openapi.json": {"GET": _openapi},
            "/control/recover-device": {"POST": self._recover_device},
        }
        """What answers each path and method; HEAD is answered as GET is."""
        # The most asked for first: they are tried in order.
        self._router = Router(
            [Route(path, _Endpoint(methods)) for path, methods in self.routes.items()],
            redirect_slashes=False,
            default=_nowhere,
        )

    async def asgi(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        await self._router(scope, receive, send)

    async def _health(self, _: Request) -> Response:
        body = health.report(
            self._engine.snapshot,
            self._queue.state(),
            self._pool.state(),
            instance=self._instance,
            draining=self.draining,
            background=self.background,
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
        codings = decode.codings(http.lines(b"content-encoding"))
        return await _unless_gone(http, self._answer(body, codings))

    async def _answer(self, body: bytes, codings: Sequence[str]) -> Response:
        asked = await self._parser.understand(body, codings, request.check)
        decision = await self._decisions.decide(asked)
        chosen = decision.body.get("routing") or decision.body["x_routing"]
        headers = headers_of(chosen)
        if decision.timing:
            headers.append((b"server-timing", decision.timing))
        return _json(200, decision.body, headers)

    async def _batch(self, http: Request) -> Response:
        self._authenticate(http)
        body = await bodies.read(http, self._limits)
        codings = decode.codings(http.lines(b"content-encoding"))
        return await _unless_gone(http, self._answer_batch(body, codings))

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
        given = http.header(b"x-omni-jev-control")
        if self._control_token is None or not hmac.compare_digest(given, self._control_token):
            raise _not_found()
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
        header = http.header(b"authorization")
        scheme, _, key = header.partition(b" ")
        if not hmac.compare_digest(key.strip(), self._api_key) or scheme.lower() != b"bearer":
            missing = "missing" if not header else "invalid"
            raise problems.refused(
                401,
                problems.AUTHENTICATION,
                f"{missing} bearer key",
                [(b"www-authenticate", b"Bearer")],
            )


Handler = Callable[[Request], Awaitable[Response]]


class _Endpoint:
    """What answers at one path, without Starlette's own requests and responses, which cost more."""

    def __init__(self, methods: Mapping[str, Handler]) -> None:
        self._methods = methods

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        try:
            handler = self._handler(scope["method"])
            response = await handler(Request(scope["headers"], receive))
        except Problem as problem:
            response = _json(problem.status, problem.body, problem.headers)
        await response.send(send)

    def _handler(self, method: str) -> Handler:
        handler = self._methods.get("GET" if method == "HEAD" else method)
        if handler is None:
            allowed = ", ".join([*self._methods, *(["HEAD"] if "GET" in self._methods else [])])
            raise problems.refused(
                405,
                problems.INVALID_REQUEST,
                "Method Not Allowed",
                [(b"allow", allowed.encode())],
            )
        return handler


async def _nowhere(_: Scope, __: Receive, send: Send) -> None:
    problem = _not_found()
    await _json(problem.status, problem.body).send(send)


async def _openapi(_: Request) -> Response:
    return Response(200, openapi.page())


async def _unless_gone(http: Request, work: Awaitable[Response]) -> Response:
    """Do the work, or have it cancelled when the client closes its connection.

    Nobody would read the answer, and a client that gave up sends the same again: computing both
    makes one slow request three.
    """
    mine = asyncio.current_task()
    gone = asyncio.ensure_future(http.until_gone())
    working = True

    def stop(_: "asyncio.Task[None]") -> None:
        if working and mine is not None and not gone.cancelled():
            mine.cancel()

    gone.add_done_callback(stop)
    try:
        return await work
    except asyncio.CancelledError:
        if mine is None or not gone.done() or mine.uncancel():
            raise
        raise ClientGone from None
    finally:
        working = False
        gone.cancel()


def _not_found() -> Problem:
    return Problem(404, "Not Found")


def _json(status: int, body: Any, headers: Sequence[Header] = ()) -> Response:
    return Response(status, render.to_json(body), headers)

"""A request's body: read within bounds, and parsed off the event loop where that takes time."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Final, TypeVar, cast

from omni_jev_worker.http import Request
from omni_jev_worker.protocol import decode, problems
from omni_jev_worker.protocol.limits import Limits
from omni_jev_worker.protocol.problems import Problem

_T = TypeVar("_T")

Check = Callable[[Any, Limits, str], _T]
"""`request.check` or `request.check_batch`."""

# Up to here a body is parsed on the event loop: less time than handing it to a thread takes.
_SMALL_BODY: Final = 64 * 1024
# What may wait for the parsing thread: 8 bodies of the largest size, 256 small ones. The largest
# takes a tenth of a second, so whoever is let in does not wait long.
_WAITING_BYTES: Final = 16 * 1024 * 1024
# A small compressed body can be a large one inside.
_LEAST_COST: Final = 64 * 1024
# A body over the limit is read on to here before the 413, so that a client in the middle of
# sending gets to read the answer instead of a reset connection.
_DISCARD_BYTES: Final = 16 * 1024 * 1024
_BODY_SECONDS: Final = 60.0


class Parser:
    """Makes checked requests of bodies, in one thread, with bounded waiting.

    Used on the event loop alone.
    """

    def __init__(self, limits: Limits, dialect: str) -> None:
        self._limits = limits
        self._dialect = dialect
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="parse")
        self._waiting = 0

    async def understand(self, body: bytes, codings: Sequence[str], check: Check[_T]) -> _T:
        """Decode, parse and check a body. Raises the `Problem` that its client gets.

        When this is cancelled, a body whose turn has not come is dropped.
        """
        if len(body) <= _SMALL_BODY and not codings:
            return self._parse(body, codings, check)
        loop = asyncio.get_running_loop()
        with self._admit(max(len(body), _LEAST_COST)):
            parse = catching(self._parse)
            parsed = await loop.run_in_executor(self._thread, parse, body, codings, check)
        if isinstance(parsed, Exception):
            raise parsed
        return cast("_T", parsed)

    @contextmanager
    def _admit(self, cost: int) -> Iterator[None]:
        if self._waiting and self._waiting + cost > _WAITING_BYTES:
            raise problems.overloaded("too many requests are waiting to be read", 1)
        self._waiting += cost
        try:
            yield
        finally:
            self._waiting -= cost

    def _parse(self, body: bytes, codings: Sequence[str], check: Check[_T]) -> _T:
        data = decode.decompress(body, codings, self._limits)
        return check(decode.parse(data, self._limits), self._limits, self._dialect)


def catching(function: Callable[..., _T]) -> Callable[..., _T | Exception]:
    """Return what a function raises: an exception that nobody awaits any more would be logged."""

    def call(*arguments: Any) -> _T | Exception:
        try:
            return function(*arguments)
        except Exception as fault:
            return fault

    return call


async def read(http: Request, limits: Limits) -> bytes:
    """Read a body to its end. Raises 408, 413 or 415, or `ClientGone`."""
    if http.header(b"content-type").lower().startswith(b"multipart/"):
        message = "multipart bodies are not supported: send JSON"
        raise problems.refused(415, problems.INVALID_REQUEST, message)
    declared = http.header(b"content-length")
    if declared.isdigit() and int(declared) > _DISCARD_BYTES:
        raise _too_large_to_read(limits)
    chunks: list[bytes] = []
    total = 0
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            more = True
            while more:
                chunk, more = await http.part()
                total += len(chunk)
                if total > _DISCARD_BYTES:
                    raise _too_large_to_read(limits)
                if total <= limits.body_bytes:
                    chunks.append(chunk)
                else:
                    chunks.clear()
    except TimeoutError:
        message = f"the body did not arrive within {_BODY_SECONDS:.0f} s"
        raise problems.refused(
            408, problems.INVALID_REQUEST, message, [(b"connection", b"close")]
        ) from None
    if total > limits.body_bytes:
        raise decode.body_too_large(limits)
    return b"".join(chunks)


def _too_large_to_read(limits: Limits) -> Problem:
    problem = decode.body_too_large(limits)
    return Problem(problem.status, problem.detail, [(b"connection", b"close")])

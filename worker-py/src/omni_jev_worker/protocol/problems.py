"""What is answered instead of a decision: a status, and a body in the clients' error shape."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

INVALID_REQUEST: Final = "invalid_request_error"
AUTHENTICATION: Final = "authentication_error"
UNAVAILABLE: Final = "service_unavailable"
INTERNAL: Final = "internal_error"
MISDIRECTED: Final = "misdirected_request"

_MAX_FAULTS: Final = 16


class Problem(Exception):
    """A request that gets an error. Its parts are all that the client sees."""

    def __init__(
        self, status: int, detail: Any, headers: Sequence[tuple[bytes, bytes]] = ()
    ) -> None:
        super().__init__(f"status {status}")
        self.status = status
        self.detail = detail
        self.headers = tuple(headers)

    @property
    def body(self) -> dict[str, Any]:
        """The JSON body."""
        return {"detail": self.detail}


def refused(
    status: int, kind: str, message: str, headers: Sequence[tuple[bytes, bytes]] = ()
) -> Problem:
    """Make a problem in the object shape: ``{"detail":{"error_type":…,"message":…}}``."""
    return Problem(status, {"error_type": kind, "message": message}, headers)


def too_large(message: str) -> Problem:
    """Make the 413 for a request past one of the limits."""
    return refused(413, INVALID_REQUEST, message)


def overloaded(message: str, retry_after: int) -> Problem:
    """Make the 503 of a full queue; ``retry_after`` is in seconds."""
    return refused(503, UNAVAILABLE, message, [(b"retry-after", str(retry_after).encode())])


def misdirected(message: str) -> Problem:
    """Make the 421: this worker takes no such request, but another may (RFC 9110, 15.5.20)."""
    return refused(421, MISDIRECTED, message)


def internal() -> Problem:
    """Make the 500: the reason is in the log, under the request's id."""
    return refused(500, INTERNAL, "the request could not be answered; see the worker's log")


Location = tuple[str | int, ...]


@dataclass(slots=True)
class Faults:
    """Collects what is wrong with a request, to answer all of it in one 422."""

    found: list[dict[str, Any]] = field(default_factory=list)

    def add(self, location: Location, message: str, kind: str) -> None:
        """Note a fault at a place in the body, such as ``("questions", "q", "type")``."""
        if len(self.found) < _MAX_FAULTS:
            # Names in a location are the client's: an answer must not repeat megabytes of them.
            place = [part[:512] if isinstance(part, str) else part for part in location]
            self.found.append({"loc": ["body", *place], "msg": message, "type": kind})

    def extend(self, others: "Faults") -> None:
        """Note the faults that others have."""
        self.found.extend(others.found[: _MAX_FAULTS - len(self.found)])

    def raise_any(self) -> None:
        """Raise the 422 if anything was noted."""
        if self.found:
            raise Problem(422, self.found)


def invalid(location: Location, message: str, kind: str) -> Problem:
    """Make the 422 for a single fault: ``{"detail":[{"loc":…,"msg":…,"type":…}]}``."""
    faults = Faults()
    faults.add(location, message, kind)
    return Problem(422, faults.found)


_PARTS: Final = {"instructions": ("instructions",), "options": ("criteria",)}


def refuse_truncated(notes: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise the 422 if any answer has an ``x_truncated``: for ``--reject-truncated``."""
    faults = Faults()
    states = [note["x_truncated"]["state"] for note in notes.values() if "x_truncated" in note]
    if any(states):
        message = f"{max(states)} tokens of the state do not fit the model's window"
        faults.add(("state",), message, "truncated")
    for name, note in notes.items():
        for part, place in _PARTS.items():
            if count := note.get("x_truncated", {}).get(part, 0):
                message = f"{count} tokens of the {part} do not fit the model's window"
                faults.add(("questions", name, *place), message, "truncated")
    faults.raise_any()

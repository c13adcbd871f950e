#!/usr/bin/env python3
"""Ask a backend directly and through the frontend, and compare the answers.

    python recipe/laya/compare_with_backend.py --model english \
        --backend http://127.0.0.1:8000 --frontend http://127.0.0.1:8080

Each request goes both ways with the same bytes. Status, content type and body must be the same,
byte for byte. Two things are not that simple, and the lines say so where they matter:

* `/health` holds numbers that change by themselves between two calls. The values of `LIVE_FIELDS`,
  and nothing else, are set aside there.
* When answers differ, the backend is asked directly once more: one that differs from itself as well
  shows nothing about the frontend. The check fails all the same.

An answer that is the same both ways but is not the one the check is about (a 401 without a key, a
503) fails too: it would have compared nothing.

Bodies, the token and headers other than the content type are never printed.

Exit codes: 0 all the same, 1 a check failed, 2 wrong usage or a side that cannot be reached.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import socket
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Sequence

TOKEN_VARIABLE = "OMNI_JEV_TEST_TOKEN"  # noqa: S105 - the variable's name, not a token

# Numbers and times in /health that move between two calls without anybody's doing.
LIVE_FIELDS = (
    "uptime_s",
    "depth",
    "oldest_ms",
    "batches",
    "rows",
    "footprint_bytes",
    "device_bytes",
    "lengths_seen",
    "releases",
    "rechecks",
    "checked_at",
)
_LIVE_VALUE = re.compile(
    rb'("(?:'
    + "|".join(LIVE_FIELDS).encode()
    + rb')"\s*:\s*)(-?[0-9][0-9.eE+-]*|null|"[0-9]{4}-[0-9-]+T[0-9:+]+")'
)

# Under the 50,000 characters that Laya's own server takes, and many packets long.
LARGE_STATE_CHARS = 45_000


class UsageError(Exception):
    """A flag or variable that cannot be used; the message never repeats a secret."""


class UnreachableError(Exception):
    """One of the two sides takes no connection, so there is nothing to compare."""


class NoAnswerError(Exception):
    """A connection was made, but no whole answer came over it."""


@dataclass(frozen=True)
class Target:
    """One side: where to connect, and what to put before each path."""

    side: str
    scheme: str
    host: str
    port: int | None
    # The path prefix of an HTTP address; the socket's path of a `unix:` one.
    path: str

    def __str__(self) -> str:
        """Write the address as a person would; it holds no secret, `parse_target` saw to that."""
        if self.scheme == "unix":
            return f"unix:{self.path}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port is None else f":{self.port}"
        return f"{self.scheme}://{host}{port}{self.path}"

    def connection(self, timeout: float) -> http.client.HTTPConnection:
        """Make a connection that is not open yet."""
        if self.scheme == "unix":
            return _UnixConnection(self.path, timeout)
        if self.scheme == "https":
            return http.client.HTTPSConnection(self.host, self.port, timeout=timeout)
        return http.client.HTTPConnection(self.host, self.port, timeout=timeout)

    def request_path(self, path: str) -> str:
        """Put the prefix, where there is one, before a path."""
        return path if self.scheme == "unix" else self.path + path


@dataclass(frozen=True)
class Answer:
    """What of a response is compared."""

    status: int
    content_type: str
    body: bytes


@dataclass(frozen=True)
class Check:
    """One request, and the statuses at which its answer is the one that was meant."""

    name: str
    method: str
    path: str
    body: bytes | None
    expected: frozenset[int]
    # Whether the values of LIVE_FIELDS may differ.
    live: bool = False


@dataclass(frozen=True)
class Verdict:
    """How a check ended, in a line."""

    passed: bool
    reason: str


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._socket_path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._socket_path)


def parse_target(side: str, url: str) -> Target:
    """Read the URL of one side: `http://`, `https://` or `unix:/path`.

    Raises:
        UsageError: It is none of these, or holds credentials, a query or a fragment. The message
            names the flag and not the URL, which may hold a secret.
    """
    flag = f"--{side}"
    if url.startswith("unix:"):
        path = url.removeprefix("unix:")
        if not path.startswith("/"):
            raise UsageError(f"{flag}: a unix: URL needs an absolute path, as unix:/run/a.sock")
        return Target(side, "unix", "localhost", None, path)
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise UsageError(f"{flag}: not a URL (is the port a number?)") from None
    if parts.scheme not in {"http", "https"} or not host:
        raise UsageError(f"{flag}: must be http://host:port, https://host or unix:/path")
    if parts.username is not None or parts.password is not None:
        raise UsageError(f"{flag}: no credentials in the URL; set {TOKEN_VARIABLE} instead")
    if "?" in url or "#" in url:
        raise UsageError(f"{flag}: the URL must have no query and no fragment")
    if any(not "!" <= character <= "~" for character in url):
        raise UsageError(f"{flag}: the URL must be printable ASCII without spaces")
    return Target(side, parts.scheme, host, port, parts.path.rstrip("/"))


def request_headers(token: str | None) -> dict[str, str]:
    """Make the headers of every request.

    Raises:
        UsageError: The token cannot stand in a header.
    """
    headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
    if token:
        if any(not "!" <= character <= "~" for character in token):
            raise UsageError(f"{TOKEN_VARIABLE}: must be printable ASCII without spaces")
        headers["Authorization"] = f"Bearer {token}"
    return headers


def make_checks(model: str) -> list[Check]:
    """Make the requests, in the order in which they are sent."""
    choice = {
        "type": "choice",
        "instructions": "Which team should handle this ticket?",
        "criteria": {
            "billing": "charges, invoices and refunds",
            "technical": "something does not work",
            "sales": None,
        },
    }
    score = {
        "type": "score",
        "instructions": "How upset is the customer?",
        "criteria": ["calm", "annoyed", "furious"],
    }
    noul = {"type": "noul", "instructions": "Does the customer ask for a refund?"}
    every = {"team": choice, "mood": score, "refund": noul}
    ticket = "I was charged twice for invoice 4711. Please refund the duplicate charge."
    # Not all ASCII, so that a body recoded on the way has a different length.
    turn = "The café's card was charged 20 € twice, and nobody has answered us so far. "
    large = (turn * (LARGE_STATE_CHARS // len(turn) + 1))[:LARGE_STATE_CHARS]

    def decision(name: str, state: str, questions: object, expected: set[int]) -> Check:
        request = {"model": model, "state": state, "questions": questions}
        body = json.dumps(request, ensure_ascii=False).encode()
        return Check(name, "POST", "/v1/systemone", body, frozenset(expected))

    return [
        Check("health", "GET", "/health", None, frozenset({200}), live=True),
        decision("choice", ticket, {"team": choice}, {200}),
        decision("score", ticket, {"mood": score}, {200}),
        decision("noul", ticket, {"refund": noul}, {200}),
        decision("together", ticket, every, {200}),
        decision("invalid", ticket, {"sky": {**noul, "type": "weather"}}, {400, 422}),
        # A backend may hold this one too large; then its refusal must come through unchanged.
        decision("large", large, every, {200, 413}),
    ]


def ask(target: Target, check: Check, headers: dict[str, str], timeout: float) -> Answer:
    """Send one request over a connection of its own and read the whole answer.

    Raises:
        UnreachableError: No connection could be made.
        NoAnswerError: The answer did not come, not in time, or not whole.
    """
    connection = target.connection(timeout)
    try:
        try:
            connection.connect()
        except (OSError, UnicodeError) as error:
            why = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise UnreachableError(f"cannot reach the {target.side} at {target}: {why}") from error
        if check.body is not None:
            headers = {**headers, "Content-Type": "application/json"}
        try:
            connection.request(check.method, target.request_path(check.path), check.body, headers)
            response = connection.getresponse()
            body = response.read()
        except TimeoutError:
            raise NoAnswerError(f"no whole answer within {timeout:g} s") from None
        except http.client.IncompleteRead:
            raise NoAnswerError("the answer broke off") from None
        except (OSError, http.client.HTTPException) as error:
            # The error's own text may quote what was received.
            raise NoAnswerError(f"no readable answer ({type(error).__name__})") from None
        return Answer(response.status, response.getheader("Content-Type") or "none", body)
    finally:
        connection.close()


def without_live_values(body: bytes) -> bytes:
    """Blank the values of LIVE_FIELDS in place; every other byte stays."""
    return _LIVE_VALUE.sub(rb"\1_", body)


def changed_live_fields(one: bytes, other: bytes) -> list[str]:
    """Name the live fields whose values differ between two bodies that are otherwise the same."""
    pairs = zip(_LIVE_VALUE.findall(one), _LIVE_VALUE.findall(other), strict=True)
    names = [a[0].split(b'"')[1].decode() for a, b in pairs if a[1] != b[1]]
    return list(dict.fromkeys(names))


def difference(check: Check, direct: Answer, through: Answer) -> str | None:
    """Say what differs, or None. Holds lengths and positions of bodies, never their bytes."""
    if direct.status != through.status:
        return f"status {direct.status} directly, {through.status} through the frontend"
    if direct.content_type != through.content_type:
        shown = [ascii(answer.content_type[:80]) for answer in (direct, through)]
        return f"content type {shown[0]} directly, {shown[1]} through the frontend"
    one, other = direct.body, through.body
    if check.live:
        one, other = without_live_values(one), without_live_values(other)
    if one == other:
        return None
    shorter = min(len(one), len(other))
    at = next((i for i in range(shorter) if one[i] != other[i]), shorter)
    aside = " (the values that change by themselves set aside)" if check.live else ""
    return (
        f"body differs from byte {at} on{aside}: "
        f"{len(direct.body)} bytes directly, {len(through.body)} through the frontend"
    )


def agreement(direct: Answer, through: Answer) -> str:
    """Say what was found to be the same."""
    text = f"{direct.status} {ascii(direct.content_type[:80])[1:-1]}, "
    if direct.body == through.body:
        return f"{text}{len(direct.body)} bytes equal"
    fields = ", ".join(changed_live_fields(direct.body, through.body))
    return f"{text}bytes equal but for the values of {fields} (they change by themselves)"


def are_two_workers(direct: Answer, through: Answer) -> bool:
    """Whether both answers name the worker process that they come from, and not the same one."""
    instances = set()
    for answer in (direct, through):
        try:
            page = json.loads(answer.body)
        except ValueError:
            return False
        instances.add(page.get("instance") if isinstance(page, dict) else None)
    return None not in instances and len(instances) > 1


def compare(
    check: Check, backend: Target, frontend: Target, headers: dict[str, str], timeout: float
) -> Verdict:
    """Send one request both ways and judge the answers.

    Raises:
        UnreachableError: One side takes no connection.
    """
    answers = []
    for target, way in ((backend, "directly"), (frontend, "through the frontend")):
        try:
            answers.append(ask(target, check, headers, timeout))
        except NoAnswerError as error:
            return Verdict(passed=False, reason=f"{way}: {error}")
    direct, through = answers
    differs = difference(check, direct, through)
    if differs is not None:
        if are_two_workers(direct, through):
            note = (
                "another worker answers behind the frontend: it must forward to this same backend"
            )
            return Verdict(passed=False, reason=f"{note} (OMNI_JEV_BACKEND_URL)")
        try:
            again = ask(backend, check, headers, timeout)
        except NoAnswerError as error:
            return Verdict(passed=False, reason=f"{differs}; asked again, directly: {error}")
        if difference(check, direct, again) is None:
            note = "asked directly again the backend answers as before: it changed on the way"
        else:
            note = "asked directly again the backend differs from itself too: it is not repeatable"
        return Verdict(passed=False, reason=f"{differs}; {note}")
    if direct.status not in check.expected:
        wanted = " or ".join(str(status) for status in sorted(check.expected))
        hint = f" (is {TOKEN_VARIABLE} set?)" if direct.status in {401, 403} else ""
        reason = f"the same both ways, but status {direct.status} where {wanted} was meant{hint}"
        return Verdict(passed=False, reason=reason)
    return Verdict(passed=True, reason=agreement(direct, through))


def _positive_seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError("must be a number of seconds") from None
    if not 0 < seconds <= 86_400:
        raise argparse.ArgumentTypeError("must be more than 0 and at most 86400 seconds")
    return seconds


def _parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Ask a backend directly and through the frontend, and compare the answers.",
        epilog=f"A bearer token is read from {TOKEN_VARIABLE}. "
        "Exit codes: 0 all the same, 1 a check failed, 2 wrong usage or a side out of reach.",
    )
    url = "http://host:port[/prefix], https://host or unix:/path"
    parser.add_argument("--model", required=True, help="the model name to put into the requests")
    parser.add_argument("--backend", required=True, metavar="URL", help=url)
    parser.add_argument("--frontend", required=True, metavar="URL", help="the same")
    parser.add_argument(
        "--timeout",
        type=_positive_seconds,
        default=75.0,
        metavar="SECONDS",
        help="the longest silence to wait through (default %(default)s: over the frontend's 60)",
    )
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run every check and print a line for each; the result is the exit code."""
    options = _parse_arguments(arguments)
    try:
        backend = parse_target("backend", options.backend)
        frontend = parse_target("frontend", options.frontend)
        headers = request_headers(os.environ.get(TOKEN_VARIABLE))
        if not options.model.isprintable():
            raise UsageError("--model: must be a name of printable characters")
        passed = failed = 0
        for check in make_checks(options.model):
            verdict = compare(check, backend, frontend, headers, options.timeout)
            word = "PASS" if verdict.passed else "FAIL"
            print(f"{word} {check.name:<8} {verdict.reason}", flush=True)
            passed += verdict.passed
            failed += not verdict.passed
    except (UsageError, UnreachableError) as error:
        print(f"{os.path.basename(__file__)}: {error}", file=sys.stderr)
        return 2
    print(f"{passed + failed} checks: {passed} passed, {failed} failed", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

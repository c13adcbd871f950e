"""What a client is told when the backend fails; the backends here are servers of the test's own."""

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from tests.harness.client import assert_own_error, assert_request_ids
from tests.harness.decisions import decision
from tests.harness.omni_jev import OmniJev
from tests.harness.servers import (
    Conversation,
    Received,
    Reply,
    Server,
    breaking_off,
    never_answering,
    refusing_address,
    replying,
    stalling_in_the_body,
)

TIMEOUT_SECONDS = 0.7


def in_front_of(url: str) -> OmniJev:
    """Start a frontend for a backend that it does not supervise."""
    settings = {"BACKEND_URL": url, "BACKEND_TIMEOUT": f"{int(TIMEOUT_SECONDS * 1000)}ms"}
    return OmniJev(settings, worker_flags=())


@pytest.mark.parametrize("silence", [never_answering, stalling_in_the_body])
def test_a_backend_that_takes_too_long_is_a_504_at_the_configured_time(
    silence: Conversation,
) -> None:
    with Server(silence) as backend, in_front_of(backend.url) as running:
        _ = running.address
        start = time.monotonic()
        answer = running.decide(decision())
        took = time.monotonic() - start
        assert_own_error(answer, 504, "timeout_error")
        assert backend.accepted.is_set()
        # The upper end is generous: a busy machine may be late, but not by the default's minute.
        assert TIMEOUT_SECONDS * 0.95 <= took < 20


def test_a_backend_that_refuses_the_connection_is_a_502() -> None:
    with refusing_address() as address, in_front_of(f"http://{address}") as running:
        assert_own_error(running.decide(decision()), 502, "backend_error")


def test_a_backend_whose_socket_is_not_there_is_a_502() -> None:
    with in_front_of("unix:/nonexistent/omni-jev-test.sock") as running:
        assert_own_error(running.decide(decision()), 502, "backend_error")


def test_an_answer_that_breaks_off_is_a_502_and_never_half_an_answer() -> None:
    with Server(breaking_off) as backend, in_front_of(backend.url) as running:
        answer = running.decide(decision())
        assert_own_error(answer, 502, "backend_error")
        assert b"noul" not in answer.body


def test_an_answer_that_is_no_http_is_a_502() -> None:
    def talk_nonsense(connection: socket.socket, _stop: threading.Event) -> None:
        connection.recv(65536)
        connection.sendall(b"220 mail.example ready\r\n")

    with Server(talk_nonsense) as backend, in_front_of(backend.url) as running:
        assert_own_error(running.decide(decision()), 502, "backend_error")


@pytest.fixture
def odd_backend() -> Iterator[Server]:
    """Answer with what it was asked, at a status that nobody expects."""

    def answer(request: Received) -> Reply:
        body = f"{request.method} {request.path} {len(request.body)} \xff".encode("latin-1")
        return Reply(418, body, {"Content-Type": "text/odd; charset=latin-1", "X-Odd": "yes"})

    with Server(replying(answer)) as backend:
        yield backend


def test_a_backends_own_error_passes_unchanged(odd_backend: Server) -> None:
    with in_front_of(odd_backend.url) as running:
        answer = running.ask("POST", "/a%2Fb/../c?x=%zz", b"four")
        assert answer.status == 418
        assert answer.body == b"POST /a%2Fb/../c?x=%zz 4 \xff"
        assert answer.header("content-type") == "text/odd; charset=latin-1"
        assert answer.header("x-odd") == "yes"
        assert_request_ids(answer)


def test_the_clients_request_id_comes_back(odd_backend: Server) -> None:
    with in_front_of(odd_backend.url) as running:
        answer = running.ask("GET", "/", headers={"X-Request-Id": "client-4711"})
        assert assert_request_ids(answer) == "client-4711"


def test_with_a_backend_of_its_own_no_worker_is_started(odd_backend: Server) -> None:
    with in_front_of(odd_backend.url) as running:
        # An answer means that the start is over.
        assert running.ask("GET", "/").status == 418
        assert running.processes() == []
        assert running.terminate() == 0


def test_the_hop_to_the_backend_uses_no_proxy_of_the_environment(
    odd_backend: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with refusing_address() as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://{proxy}")
        with in_front_of(odd_backend.url) as running:
            assert running.ask("GET", "/").status == 418


def test_a_fault_is_over_as_soon_as_the_backend_is_well_again() -> None:
    healthy = False

    def answer(_request: Received) -> Reply:
        return Reply(200, b"{}") if healthy else Reply(500, b"not yet")

    with Server(replying(answer)) as backend, in_front_of(backend.url) as running:
        assert running.ask("GET", "/").body == b"not yet"
        healthy = True
        assert running.ask("GET", "/").status == 200

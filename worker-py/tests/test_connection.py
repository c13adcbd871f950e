"""HTTP/1.1 byte by byte, sent to a real worker: what is read, what is refused, in which order."""

import http.client
import json
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from running_worker import RunningWorker

PATIENCE = 20.0

ASKED = json.dumps({"state": "x", "questions": {"q": {"type": "noul", "instructions": "?"}}})
HEALTH = b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n"
CHUNKED = b"POST /v1/systemone HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"


def decision(*headers: bytes, body: bytes = ASKED.encode()) -> bytes:
    lines = [b"POST /v1/systemone HTTP/1.1", b"host: x", b"content-length: %d" % len(body)]
    return b"\r\n".join([*lines, *headers, b"", body])


class Replies:
    """Reads the answers of one connection."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._file = connection.makefile("rb")

    def close(self) -> None:
        self._file.close()

    def next(self) -> tuple[int, dict[str, str], bytes]:
        status = int(self._file.readline().split()[1])
        headers = dict(http.client.parse_headers(self._file).items())
        return status, headers, self._file.read(int(headers.get("content-length", "0")))

    def ended(self) -> bool:
        return self._file.read() == b""


@contextmanager
def sending(worker: RunningWorker, sent: bytes) -> Iterator[Replies]:
    address = ("127.0.0.1", worker.ready["port"])
    with socket.create_connection(address, PATIENCE) as connection:
        connection.sendall(sent)
        with closing(Replies(connection)) as replies:
            yield replies


@pytest.fixture(autouse=True)
def _nothing_unexpected(worker: RunningWorker) -> Iterator[None]:
    yield
    assert worker.ask("GET", "/health").status == 200
    assert not [line for line in worker.lines if line.get("level") == "error"]
    assert not [line for line in worker.lines if "not_json" in line]


def test_requests_that_are_sent_together_are_answered_in_their_order(
    worker: RunningWorker,
) -> None:
    ids = [b"a", b"b", b"c"]
    sent = b"".join(decision(b"x-request-id: " + each) for each in ids) + HEALTH
    with sending(worker, sent) as replies:
        answers = [replies.next() for _ in range(4)]
    assert [status for status, _, _ in answers] == [200] * 4
    assert [headers["x-request-id"] for _, headers, _ in answers[:3]] == ["a", "b", "c"]
    assert json.loads(answers[3][2])["ready"] is True


def test_what_is_no_http_behind_a_request_is_refused_after_its_answer(
    worker: RunningWorker,
) -> None:
    with sending(worker, decision() + HEALTH + b"no http\r\n\r\n") as replies:
        assert [replies.next()[0] for _ in range(3)] == [200, 200, 400]
        assert replies.ended()


def test_a_broken_body_behind_a_request_is_refused_after_its_answer_and_by_its_own_id(
    worker: RunningWorker,
) -> None:
    broken = CHUNKED.replace(b"\r\n\r\n", b"\r\nx-request-id: its-own\r\n\r\nzz\r\n")
    with sending(worker, decision() + broken) as replies:
        assert replies.next()[0] == 200
        status, headers, _ = replies.next()
        assert (status, headers["x-request-id"]) == (400, "its-own")
        assert replies.ended()


def test_a_broken_body_whose_request_has_been_refused_already_ends_the_connection(
    worker: RunningWorker,
) -> None:
    sent = CHUNKED.replace(b"/v1/systemone", b"/nothing") + b"1\r\nx\r\n"
    with sending(worker, sent) as replies:
        assert replies.next()[0] == 404
        replies.connection.sendall(b"zz\r\n")
        assert replies.ended()


@pytest.mark.parametrize(
    "head",
    [
        b"GET /health HTTP/1.1\r\n\r\n",
        b"GET /health HTTP/1.1\r\nhost: x\r\nhost: x\r\n\r\n",
        b"POST /v1/systemone HTTP/1.1\r\nhost: x\r\ntransfer-encoding: gzip, chunked\r\n\r\n",
        b"GET /health HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
        b"GET /caf\xe9 HTTP/1.1\r\nhost: x\r\n\r\n",
        b"GET /health HTTP/1.1\r\nhost : x\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
)
def test_a_head_that_is_no_head_is_a_400_and_the_end(worker: RunningWorker, head: bytes) -> None:
    with sending(worker, head) as replies:
        status, headers, body = replies.next()
        assert status == 400
        assert headers["x-request-id"] == headers["x-typesafe-request-id"]
        assert json.loads(body)["detail"]["error_type"] == "invalid_request_error"
        assert replies.ended()


@pytest.mark.parametrize(
    "endless",
    [
        b"GET /",
        b"GET /health HTTP/1.1\r\nhost: x\r\nx: ",
        CHUNKED + b"1;",
        CHUNKED + b"0\r\nx: ",
    ],
)
def test_what_does_not_end_is_a_400_once_it_is_too_long(
    worker: RunningWorker, endless: bytes
) -> None:
    # In parts: the bound is for the sum, not for what comes at once.
    with sending(worker, endless + b"a" * 40_000) as replies:
        # It has read the first part when it answers another connection's request.
        assert worker.ask("GET", "/health").status == 200
        replies.connection.sendall(b"a" * 70_000)
        assert replies.next()[0] == 400


def test_a_long_header_within_the_bound_is_read(worker: RunningWorker) -> None:
    sent = HEALTH.replace(b"host: x", b"host: x\r\nx: " + b"a" * 60_000)
    with sending(worker, sent) as replies:
        assert replies.next()[0] == 200


def test_a_body_of_many_small_chunks_is_read(worker: RunningWorker) -> None:
    body = ASKED.encode() + b" " * 30_000
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body)
    with sending(worker, CHUNKED + chunks + b"0\r\nx-trailer: 1\r\n\r\n" + HEALTH) as replies:
        assert [replies.next()[0] for _ in range(2)] == [200, 200]


def test_a_head_request_is_answered_without_a_body(worker: RunningWorker) -> None:
    with sending(worker, HEALTH.replace(b"GET", b"HEAD") + HEALTH) as replies:
        line = replies._file.readline()
        headers = http.client.parse_headers(replies._file)
        assert b" 200 " in line
        assert int(headers["content-length"]) > 2
        # The next answer begins at once.
        assert replies.next()[0] == 200


@pytest.mark.parametrize(
    "sent",
    [
        HEALTH.replace(b"1.1", b"1.0"),
        HEALTH.replace(b"host: x", b"host: x\r\nconnection: close"),
    ],
)
def test_a_connection_that_is_not_to_be_kept_ends_with_the_answer(
    worker: RunningWorker, sent: bytes
) -> None:
    with sending(worker, sent) as replies:
        status, headers, _ = replies.next()
        assert (status, headers["connection"]) == (200, "close")
        assert replies.ended()


def test_a_client_that_waits_to_be_told_to_go_on_is_told(worker: RunningWorker) -> None:
    head, _, body = decision(b"expect: 100-continue").partition(b"\r\n\r\n")
    with sending(worker, head + b"\r\n\r\n") as replies:
        assert replies.next()[0] == 100
        replies.connection.sendall(body)
        assert replies.next()[0] == 200


@pytest.mark.parametrize("cut", [None, 60, -20])
def test_a_wish_for_another_protocol_is_ignored(worker: RunningWorker, cut: int | None) -> None:
    wish = b"connection: upgrade, keep-alive\r\nupgrade: h2c\r\nhost: x"
    chunked = CHUNKED + b"%x\r\n%b\r\n0\r\n\r\n" % (len(ASKED), ASKED.encode())
    sent = b"".join([decision(), chunked, HEALTH, decision()]).replace(b"host: x", wish)
    with sending(worker, sent[:cut]) as replies:
        if cut is not None:
            replies.connection.sendall(sent[cut:])
        assert [replies.next()[0] for _ in range(4)] == [200] * 4


def test_a_method_that_http_has_not_and_two_framings_are_a_400(worker: RunningWorker) -> None:
    unknown = HEALTH.replace(b"GET", b"FETCH")
    both = decision(b"transfer-encoding: chunked")
    for sent in (unknown, both):
        with sending(worker, sent) as replies:
            assert replies.next()[0] == 400

"""The benchmarks' connection: bodies of either framing, whole or in pieces, and TLS."""

import shutil
import socket
import ssl
import subprocess
import threading
from pathlib import Path

import pytest

from benchmarks.gpu.connection import Connection, Reply, Secure, post
from benchmarks.gpu.load import arrivals
from benchmarks.gpu.workload import Item
from benchmarks.laya.subjects import locate
from tests.harness.servers import Conversation, Server, read_request

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
LENGTH = b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\nhello world"


@pytest.mark.parametrize(
    "answer",
    [
        LENGTH,
        HEAD + b"5\r\nhello\r\n6;x=y\r\n world\r\n0\r\n\r\n",
        HEAD + b"B\r\nhello world\r\n0\r\nX-Late: yes\r\n\r\n",
    ],
)
@pytest.mark.parametrize("piece", [1, 7, 1000])
def test_an_answer_is_read_whole_however_it_is_framed_and_cut(answer: bytes, piece: int) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    stop = threading.Event()

    def serve() -> None:
        taken, _ = listener.accept()
        taken.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with taken:
            for _ in range(2):
                taken.recv(65536)
                for at in range(0, len(answer), piece):
                    taken.sendall(answer[at : at + piece])
            stop.wait(30)

    threading.Thread(target=serve, daemon=True).start()
    connection = Connection(listener.getsockname())
    try:
        for _ in range(2):
            assert connection.exchange(post(b"{}")) == Reply(200, b"hello world", closes=False)
    finally:
        stop.set()
        connection.close()
        listener.close()


def test_a_connection_that_the_server_ended_while_it_was_idle_is_opened_anew() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    ended = threading.Event()

    def serve() -> None:
        for _ in range(2):
            taken, _ = listener.accept()
            with taken:
                taken.recv(65536)
                taken.sendall(LENGTH)
            ended.set()

    threading.Thread(target=serve, daemon=True).start()
    connection = Connection(listener.getsockname())
    connection.refresh()
    assert connection.exchange(post(b"{}")).status == 200
    assert ended.wait(30)
    connection.refresh()
    assert connection.exchange(post(b"{}")).status == 200
    connection.close()
    listener.close()


def test_requests_that_are_due_do_not_meet_the_end_of_an_idle_connection() -> None:
    # Each connection takes one request, and is ended without a word.
    body = b'{"answers":{"q":{}}}'
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    with Server(answering_once(answer)) as server:
        address, path = locate(server.url)
        items = [Item(post(b"{}", path), b'"q"', 1, 0)] * 60
        outcome = arrivals(address, items, [n / 100 for n in range(60)], processes=1)
    assert outcome.errors == {}
    assert len(outcome.times) == 60


def answering_once(answer: bytes) -> Conversation:
    def converse(connection: socket.socket, _stop: threading.Event) -> None:
        if read_request(connection) is not None:
            connection.sendall(answer)

    return converse


def test_an_answer_of_unknown_length_is_refused() -> None:
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        taken, _ = listener.accept()
        with taken:
            taken.recv(65536)
            taken.sendall(b"HTTP/1.1 200 OK\r\n\r\nhello")

    threading.Thread(target=serve, daemon=True).start()
    connection = Connection(listener.getsockname())
    with pytest.raises(ConnectionError, match="unknown length"):
        connection.exchange(post(b"{}"))
    connection.close()
    listener.close()


def test_a_request_names_its_host_and_path() -> None:
    head = post(b"{}", "/laya/v1/systemone", "host.example:443")
    assert head.startswith(b"POST /laya/v1/systemone HTTP/1.1\r\nhost: host.example:443\r\n")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_a_server_behind_tls_is_asked_only_if_its_certificate_is_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-nodes", "-keyout", str(key), "-out", str(certificate), "-days", "2", *subject]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate, key)
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]

    def serve() -> None:
        while True:
            try:
                taken, _ = listener.accept()
            except OSError:
                return
            try:
                with server.wrap_socket(taken, server_side=True) as spoken:
                    spoken.recv(65536)
                    spoken.sendall(LENGTH)
                    spoken.recv(1)
            except OSError:
                continue

    threading.Thread(target=serve, daemon=True).start()
    address, path = locate(f"https://localhost:{port}")
    assert (address, path) == (Secure("localhost", port), "/v1/systemone")
    with pytest.raises(ssl.SSLCertVerificationError):
        Connection(address)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    connection = Connection(address)
    assert connection.exchange(post(b"{}", path)).body == b"hello world"
    connection.close()
    listener.close()

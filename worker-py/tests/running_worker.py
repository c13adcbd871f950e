"""A real worker process for a test: its log, its address, a plain HTTP client."""

import http.client
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

SOURCE = Path(__file__).resolve().parents[1] / "src"
# Importing torch takes seconds when idle and much longer on a machine that builds something.
LONG = 180.0


def environment(extra: Mapping[str, str | None] = {}) -> dict[str, str]:
    """The variables of a worker process; a value of None takes one away."""
    found = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("OMNI_JEV_", "LAYA_"))
    }
    found["PYTHONPATH"] = str(SOURCE)
    found["HF_HUB_OFFLINE"] = "1"
    for name, value in extra.items():
        if value is None:
            found.pop(name, None)
        else:
            found[name] = value
    return found


def run(flags: Sequence[str], **extra: str | None) -> subprocess.CompletedProcess[str]:
    """Run a worker that is expected to end by itself."""
    return subprocess.run(
        [sys.executable, "-m", "omni_jev_worker", *flags],
        env=environment(extra),
        capture_output=True,
        text=True,
        timeout=LONG,
        check=False,
        stdin=subprocess.DEVNULL,
    )


class Reply:
    """A response, read to its end."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self.headers = response.headers
        self.body = response.read()

    def json(self) -> Any:
        return json.loads(self.body)


class RunningWorker:
    """Starts a worker and waits until it is ready; kills it at the end."""

    def __init__(
        self,
        flags: Sequence[str],
        *,
        wait: bool = True,
        stdin: int = subprocess.DEVNULL,
        **extra: str | None,
    ) -> None:
        if "--uds" not in flags:
            flags = [*flags, "--port", "0"]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "omni_jev_worker", *flags],
            env=environment(extra),
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.lines: list[dict[str, Any]] = []
        self._news = threading.Condition()
        self._ended = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        if wait:
            self.wait_for("ready")

    def __enter__(self) -> "RunningWorker":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(LONG)
        self._reader.join(LONG)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()

    def wait_for(self, phase: str) -> dict[str, Any]:
        """Wait for the first log line of a phase."""
        with self._news:
            found = self._news.wait_for(lambda: self._line(phase) or self._ended, LONG)
            line = self._line(phase)
        assert found, f"no {phase} line came in time: {self.lines}"
        assert line is not None, f"the worker ended before {phase}: {self.lines}"
        return line

    def wait_for_end(self) -> int:
        code = self.process.wait(LONG)
        self._reader.join(LONG)
        return code

    @property
    def ready(self) -> dict[str, Any]:
        return self.wait_for("ready")

    def connect(self) -> http.client.HTTPConnection:
        address = str(self.ready["address"])
        if address.startswith("unix:"):
            return _UnixConnection(address.removeprefix("unix:"))
        return http.client.HTTPConnection("127.0.0.1", int(self.ready["port"]), timeout=LONG)

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] = {},
    ) -> Reply:
        connection = self.connect()
        try:
            connection.request(method, path, body, dict(headers))
            return Reply(connection.getresponse())
        finally:
            connection.close()

    def decide(self, body: Any, **headers: str) -> Reply:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.ask("POST", "/v1/systemone", data, named)

    def _line(self, phase: str) -> dict[str, Any] | None:
        return next((line for line in self.lines if line.get("phase") == phase), None)

    def _read(self) -> None:
        assert self.process.stderr is not None
        for text in self.process.stderr:
            with self._news:
                self.lines.append(_parsed(text))
                self._news.notify_all()
        with self._news:
            self._ended = True
            self._news.notify_all()


class Kept:
    """One worker for many tests, since a start takes seconds; after a test that ends it, another.

    The tests that end it come last in their file, so that there are few others.
    """

    def __init__(self, start: Callable[[], RunningWorker]) -> None:
        self._start = start
        self._worker: RunningWorker | None = None

    def __enter__(self) -> "Kept":
        return self

    def __exit__(self, *fault: Any) -> None:
        if self._worker is not None:
            self._worker.__exit__(None, None, None)

    def running(self) -> RunningWorker:
        """The worker, ready."""
        if self._worker is not None and self._worker.process.poll() is not None:
            self._worker.__exit__(None, None, None)
            self._worker = None
        if self._worker is None:
            self._worker = self._start()
        return self._worker


def _parsed(text: str) -> dict[str, Any]:
    try:
        line = json.loads(text)
    except ValueError:
        return {"not_json": text}
    return line if isinstance(line, dict) else {"not_json": text}


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("worker", timeout=LONG)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(LONG)
        self.sock.connect(self._path)

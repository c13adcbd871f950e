"""A thousand slow clients, by slowhttptest, beside one that keeps asking.

    python3 benchmarks/frontend/slow_clients.py [--binary target/release/omni-jev] [--seconds 40]

Needs slowhttptest (Debian's package of that name) and nothing of Python's but its standard
library. Starts omni-jev before a backend of its own, lets slowhttptest attack it in its three
modes (slow headers, slow bodies, slow reading) and asks it all the while as a usual client does.
Prints a table; exits with 1 if any of the usual client's requests failed, or slowhttptest found
the service to be unavailable.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import resource
import shutil
import socket
import statistics
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

CONNECTIONS = 1000
ANSWER = b'{"answers":{}}' * 40_000
"""Large, so that a client that reads slowly has something to leave unread."""

MODES = {
    "slow headers": ["-H", "-i", "5"],
    "slow bodies": ["-B", "-i", "5", "-s", "8192"],
    "slow reading": ["-X", "-w", "512", "-y", "1024", "-n", "5", "-z", "32", "-k", "3"],
}


class Backend(BaseHTTPRequestHandler):
    """Answers everything with the same."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1
    """Head and body go in one packet: the second would wait for the first one's receipt."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-length", str(len(ANSWER)))
        self.end_headers()
        self.wfile.write(ANSWER)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.send_response(200)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    """A thread for each connection."""

    daemon_threads = True
    request_queue_size = 1024

    def handle_error(self, *_: object) -> None:
        """Says nothing: omni-jev leaves when its client has."""


class UsualClient(threading.Thread):
    """Asks one question after the other, each on a connection of its own."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self.port = port
        self.over = threading.Event()
        self.seconds: list[float] = []
        self.failures: list[str] = []

    def run(self) -> None:
        while not self.over.is_set():
            begun = time.monotonic()
            try:
                connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
                connection.connect()
                connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection.request("POST", "/v1/systemone", b"{}")
                status = connection.getresponse().status
                connection.close()
                if status != 200:
                    self.failures.append(str(status))
            except (OSError, http.client.HTTPException) as error:
                self.failures.append(repr(error))
            self.seconds.append(time.monotonic() - begun)
            time.sleep(0.02)


def start(binary: Path, backend: int) -> tuple[subprocess.Popen[str], int]:
    """Starts omni-jev and gives the port that it says it listens on."""
    process = subprocess.Popen(
        [binary],
        env={
            **os.environ,
            "OMNI_JEV_BIND": "127.0.0.1:0",
            "OMNI_JEV_ADMIN_BIND": "off",
            "OMNI_JEV_BACKEND_URL": f"http://127.0.0.1:{backend}",
            "OMNI_JEV_LOG_FORMAT": "json",
        },
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    for line in process.stderr or ():
        entry = json.loads(line)
        if entry.get("listener") == "frontend":
            # A line for each request, which somebody has to take.
            threading.Thread(target=process.communicate, daemon=True).start()
            return process, int(entry["address"].rsplit(":", 1)[1])
    raise SystemExit("omni-jev did not start")


def attack(program: str, flags: list[str], port: int, seconds: int) -> dict[str, str]:
    """Lets slowhttptest run and gives its last word."""
    command = [program, *flags, "-c", str(CONNECTIONS), "-r", "250", "-l", str(seconds), "-p", "3"]
    url = f"http://127.0.0.1:{port}/v1/models"
    ended = subprocess.run([*command, "-u", url], capture_output=True, text=True, check=False)
    plain = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", ended.stdout)
    return dict(re.findall(r"^\s*(\w[\w ]*?):\s+(\w[\w ]*?)\s*$", plain, re.MULTILINE))


def main() -> int:
    """Runs the attacks and prints the table; the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--binary", type=Path, default=Path("target/release/omni-jev"))
    parser.add_argument("--seconds", type=int, default=40, help="of each attack")
    options = parser.parse_args()
    program = shutil.which("slowhttptest")
    if program is None:
        parser.error("slowhttptest is not there: on Debian, `apt-get install slowhttptest`")
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))

    backend = Server(("127.0.0.1", 0), Backend)
    threading.Thread(target=backend.serve_forever, daemon=True).start()
    process, port = start(options.binary, backend.server_port)
    fine = True
    titles = ["attack", "at its last report: open, closed, failed", "available", "how it ended"]
    titles += ["usual client: requests, failed", "median ms", "slowest ms"]
    print(f"| {' | '.join(titles)} |")
    print("| --- " * len(titles) + "|")
    try:
        for name, flags in MODES.items():
            client = UsualClient(port)
            client.start()
            begun = time.monotonic()
            last = attack(program, flags, port, options.seconds)
            took = time.monotonic() - begun
            client.over.set()
            client.join()
            available = last.get("service available", "unknown")
            fine = fine and not client.failures and available == "YES"
            cells = [
                name,
                ", ".join(last.get(word, "?") for word in ("connected", "closed", "error")),
                available,
                f"{last.get('Exit status', 'unknown')}, {took:.0f} s",
                f"{len(client.seconds)}, {len(client.failures)}",
                f"{statistics.median(client.seconds) * 1000:.1f}",
                f"{max(client.seconds) * 1000:.1f}",
            ]
            print(f"| {' | '.join(cells)} |", flush=True)
            for failure in client.failures[:5]:
                print(f"failed: {failure}", file=sys.stderr)
    finally:
        process.terminate()
        process.wait()
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())

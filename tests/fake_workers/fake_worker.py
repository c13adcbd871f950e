"""A worker of a few lines, in place of the real one: it keeps the agreement but for one vice.

`OMNI_JEV_WORKER_PYTHON` names a script that runs this file, so its arguments are
`-m omni_jev_worker VICE [ARGUMENTS] --drain-timeout SECONDS --uds PATH`.

It answers a decision with the decision's own state, so that a client can tell its answer from
anyone else's. The runtime folder, which is the test's own, has a line in `starts` for each start;
a file of the name of a vice that holds the process's id switches that vice on while it runs.
"""

import json
import os
import signal
import socket
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path


def watch_lifeline() -> None:
    while os.read(0, 4096):
        pass
    os._exit(1)


threading.Thread(target=watch_lifeline, daemon=True).start()

# The last four are of the frontend: how long to drain, and where to listen.
_, _, VICE, *ARGUMENTS = sys.argv[1:-4]
SOCKET = sys.argv[-1]
FOLDER = Path(os.environ["XDG_RUNTIME_DIR"])
HEALTH = {
    "status": "ready",
    "ready": True,
    "instance": os.environ["OMNI_JEV_INSTANCE"],
    "checkpoint": "fake",
    "revision": "r1",
    "checkpoint_hash": "f0" * 32,
    "device": "cpu",
    "requested_device": "cpu",
}
# From the start or never: the socket's queue is then already made.
IS_BEHIND = VICE == "behind"
BALLAST: list[bytes] = []
HELPERS: list[subprocess.Popen[bytes]] = []


def log(level: str, message: str, **fields: object) -> None:
    print(json.dumps({"level": level, "message": message, **fields}), file=sys.stderr, flush=True)


def is_on(vice: str) -> bool:
    if vice == VICE:
        return True
    try:
        return (FOLDER / vice).read_text(encoding="utf-8") == str(os.getpid())
    except OSError:
        return False


def number_of_this_start() -> int:
    """Count the starts, this one included."""
    with (FOLDER / "starts").open("a", encoding="utf-8") as starts:
        print(os.getpid(), file=starts)
    return len((FOLDER / "starts").read_text(encoding="utf-8").splitlines())


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if is_on("silent"):
            time.sleep(600)
        self.answer(500 if is_on("unhealthy") else 200, HEALTH)

    def do_POST(self) -> None:
        if self.path == "/control/recover-device":
            self.recover()
            return
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if is_on("silent") or is_on("hang-inference"):
            time.sleep(600)
        if is_on("grandchild"):
            keep_everything_open()
            time.sleep(600)
        if is_on("prepare"):
            prepare_another_checkpoint()
        if is_on("slow"):
            time.sleep(float(ARGUMENTS[0]))
        if is_on("drain"):
            with ANSWERING:
                time.sleep(float(ARGUMENTS[0]))
                self.answer(200, {"echo": body["state"], "pid": os.getpid()})
            return
        if is_on("grow") and len(BALLAST) < 20:
            BALLAST.append(b"x" * 20_000_000)
        self.answer(200, {"echo": body["state"], "pid": os.getpid()})

    def recover(self) -> None:
        if self.headers["x-omni-jev-control"] != os.environ["OMNI_JEV_CONTROL_TOKEN"]:
            self.answer(403, {})
        elif is_on("lost-for-good"):
            self.answer(200, {"recovered": False, "reason": "the device is gone"})
        else:
            HEALTH.update(device="mps", device_mismatch=False, status="ready")
            self.answer(200, {"recovered": True})

    def answer(self, status: int, value: object) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        if IS_BEHIND:
            # So that each request has to be accepted.
            self.send_header("connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    request_queue_size = 0 if IS_BEHIND else 128

    def get_request(self) -> tuple[socket.socket, str]:
        if IS_BEHIND:
            time.sleep(0.05)
        connection: tuple[socket.socket, str] = super().get_request()
        return connection

    def handle_error(self, *_: object) -> None:
        """A client may leave at any time."""


def lose_device() -> None:
    HEALTH.update(device="cpu", device_mismatch=True, status="degraded")


def flood() -> None:
    while True:
        sys.stderr.buffer.write(b"all work and no play \xff\xfe\n" * 500)
        sys.stderr.buffer.flush()


def close_socket(server: Server) -> None:
    server.shutdown()
    server.server_close()
    Path(SOCKET).unlink()


def keep_everything_open() -> None:
    """Fork a process that keeps the listener and every connection, and outlives this one."""
    if os.fork() == 0:
        if ARGUMENTS == ["daemon"]:
            os.setsid()
        time.sleep(600)
        os._exit(0)


def follow_vices(server: Server) -> None:
    """Begin those that no request begins, half a second after the start or when they are given."""
    begun: set[str] = set()
    first_time = {"close-socket", "lost-device", "lost-for-good"}
    vices: dict[str, Callable[[], object]] = {
        "flood": lambda: threading.Thread(target=flood, daemon=True).start(),
        "close-socket": lambda: close_socket(server),
        "lost-device": lose_device,
        "lost-for-good": lose_device,
        "exit-now": lambda: os._exit(1),
    }
    time.sleep(0.5)
    while True:
        for vice, begin in vices.items():
            at_the_start = vice == VICE and (start == 1 or vice not in first_time)
            if vice not in begun and (at_the_start or (vice != VICE and is_on(vice))):
                begun.add(vice)
                begin()
        time.sleep(0.05)


PREPARING = threading.Lock()
PREPARED = threading.Event()


def prepare_another_checkpoint() -> None:
    """Answer nothing for longer than a hang may last, having said so."""
    with PREPARING:
        if PREPARED.is_set():
            return
        log("info", "preparing another checkpoint", phase="preparing")
        time.sleep(float(ARGUMENTS[0]))
        log("info", "prepared", phase="ready")
        PREPARED.set()


# Held by the one request that is answered, with the vice that drains.
ANSWERING = threading.Lock()


def drain(server: Server) -> None:
    """Do as the real one that is asked to stop: close the socket, answer what it has, end."""
    log("info", "asked to stop: finishing what is in flight", phase="draining")
    server.shutdown()
    server.server_close()
    Path(SOCKET).unlink()
    with ANSWERING:
        os._exit(0)


def drain_once(*_: object) -> None:
    # Of a second one it would drop what it has, as the real one does.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    threading.Thread(target=drain, args=[server]).start()


def start_a_large_helper() -> None:
    """Start a process that holds 200 MB and ends with this one, as another checkpoint's does."""
    program = "import sys; held = b'x' * 200_000_000; print('holds', flush=True); sys.stdin.read()"
    helper = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert helper.stdout is not None
    helper.stdout.readline()
    HELPERS.append(helper)


def leave_an_orphan() -> None:
    subprocess.run(["sh", "-c", f"sleep {ARGUMENTS[0]} &"], check=True)


start = number_of_this_start()
if VICE == "exit":
    log("error", f"cannot go on: {' '.join(ARGUMENTS[1:])}")
    sys.exit(int(ARGUMENTS[0]))
log("info", "importing", phase="import", threads=2)
if VICE == "import-long-at-first" and start == 1:
    time.sleep(600)
log("info", "loading", phase="load")
if VICE == "load-for-ever" or (VICE == "load-long-at-first" and start == 1):
    time.sleep(600)
if VICE in ("lost-device", "lost-for-good"):
    HEALTH.update(device="mps", requested_device="mps")

server = Server(SOCKET, Handler)
if VICE == "ignore-sigterm":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
elif VICE == "drain":
    signal.signal(signal.SIGTERM, drain_once)
else:
    # As the real one: what is in flight is answered, and then it ends.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
threading.Thread(target=follow_vices, args=[server], daemon=True).start()
if VICE == "exit-soon-after-ready":
    delay, times = ARGUMENTS
    if start <= int(times):
        threading.Timer(float(delay), os._exit, [1]).start()
if VICE == "orphan":
    leave_an_orphan()
if VICE == "large-helper":
    start_a_large_helper()
log("info", "listening", phase="ready")
server.serve_forever()
# It has closed its socket, and lives on.
time.sleep(600)

"""A worker of a few lines for the supervisor's tests: health on a Unix socket, and one vice.

Usage: fake_worker.py VICE [ARGUMENT] --uds PATH

It follows the worker's side of the agreement (lifeline, JSON log on stderr, /health) unless the
vice is to break it. With FAKE_WORKER_NOTES set, it appends to that file what a test has to know.
"""

import json
import os
import signal
import socketserver
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path


def watch_lifeline() -> None:
    while os.read(0, 4096):
        pass
    os._exit(1)


if os.environ.get("OMNI_JEV_LIFELINE") == "stdin":
    threading.Thread(target=watch_lifeline, daemon=True).start()

VICE, *ARGUMENTS = sys.argv[1:-2]
SOCKET = sys.argv[-1]
HEALTH = {"status": "ready", "ready": True, "instance": os.environ["OMNI_JEV_INSTANCE"]}


def log(level: str, message: str, **fields: object) -> None:
    print(json.dumps({"level": level, "message": message, **fields}), file=sys.stderr, flush=True)


def note(text: object) -> None:
    with Path(os.environ["FAKE_WORKER_NOTES"]).open("a", encoding="utf-8") as notes:
        print(text, file=notes)


class Health(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = json.dumps(HEALTH).encode()
        self.send_response(200 if HEALTH["ready"] else 503)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


def serve() -> None:
    server = Server(SOCKET, Health)
    log("info", "listening", phase="ready", color="green")
    server.serve_forever()


def exit_with() -> None:
    log("error", f"cannot go on: {ARGUMENTS[1]}")
    sys.exit(int(ARGUMENTS[0]))


def die_later() -> None:
    threading.Timer(float(ARGUMENTS[0]), os._exit, [1]).start()


def ignore_sigterm() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def grandchild() -> None:
    note(subprocess.Popen(["sleep", "600"]).pid)


def write_for_ever() -> None:
    while True:
        sys.stderr.buffer.write(b"all work and no play \xff\xfe\n" * 500)
        sys.stderr.buffer.flush()


def flood() -> None:
    threading.Thread(target=write_for_ever, daemon=True).start()


def flood_once() -> None:
    for _ in range(1000):
        sys.stderr.buffer.write(b"all work and no play\n" * 1000)


def long_line() -> None:
    print("x" * 10_000_000, file=sys.stderr, flush=True)
    print("after the long line", file=sys.stderr, flush=True)


def rubbish() -> None:
    sys.stdout.buffer.write(bytes(range(256)) * 1000 + b"\nplain words\n")
    sys.stdout.buffer.flush()


def other_instance() -> None:
    HEALTH["instance"] = "someone-else"


def degraded() -> None:
    HEALTH.update(device_mismatch=True, device="cpu", requested_device="mps")


def never_ready() -> None:
    log("info", "reading", phase="load")
    time.sleep(600)


def answers_not_ready() -> None:
    HEALTH.update(ready=False, status="loading")


def environment() -> None:
    for name in ("OMNI_JEV_LIFELINE", "OMNI_JEV_SUPERVISOR_PID", "OMNI_JEV_INSTANCE", "EXTRA"):
        note(f"{name}={os.environ.get(name)}")
    note(f"group={os.getpgrp() == os.getpid()}")


VICES = {
    "none": lambda: None,
    "exit": exit_with,
    "die-later": die_later,
    "ignore-sigterm": ignore_sigterm,
    "grandchild": grandchild,
    "flood": flood,
    "flood-once": flood_once,
    "long-line": long_line,
    "rubbish": rubbish,
    "other-instance": other_instance,
    "degraded": degraded,
    "never-ready": never_ready,
    "answers-not-ready": answers_not_ready,
    "environment": environment,
}

VICES[VICE]()
serve()

"""Stands in for the worker process of another checkpoint: `fake_child.py NAME WAY… --uds PATH`.

The ways: `good`; `held FIFO`, ready once somebody has written to it; `unreachable`,
`wrong_device` and `broken`, which end with what the worker says then. A request whose state is the
path of a FIFO is answered when somebody has written to that.
"""

import json
import os
import signal
import socketserver
import sys
from http.server import BaseHTTPRequestHandler
from typing import Any


def say(level: str, message: str, **fields: Any) -> None:
    print(json.dumps({"level": level, "message": message, **fields}), file=sys.stderr, flush=True)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def address_string(self) -> str:
        return "unix"

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        model = {"checkpoint": f"of/{NAME}", "released": "2026-01-31", "device_mismatch": False}
        self.reply(200, {"models": {NAME: model}, "memory": {"footprint_bytes": 1000}})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])) or b"null")
        if self.path == "/control/recover-device":
            self.reply(200, {"recovered": True, "reason": None})
            return
        if asked["state"] == "refused":
            self.reply(413, {"detail": {"error_type": "t", "message": "m"}})
        elif asked["state"] == "die":
            os._exit(1)
        elif asked["state"] == "hang":
            os.kill(os.getpid(), signal.SIGSTOP)
        else:
            if asked["state"].startswith("/"):
                wait_for(asked["state"])
            self.reply(200, {"answers": {"by": NAME, "pid": os.getpid(), "asked": asked}})

    def reply(self, status: int, body: Any) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def wait_for(fifo: str) -> None:
    with open(fifo) as file:
        file.read()


def end(kind: str, message: str) -> None:
    say("error", message, kind=kind)
    sys.exit(78)


NAME, WAY = sys.argv[1:3]

if __name__ == "__main__":
    if WAY == "unreachable":
        end("unreachable", f"--model {NAME}: the/repository at revision main is not to be had")
    say("info", "importing", phase="import")
    if WAY == "wrong_device":
        end("wrong_device", f"--require-device: asked for cuda, {NAME} would be on cpu")
    if WAY == "broken":
        say("error", "checkpoint /secret/folder is damaged")
        sys.exit(78)
    if WAY == "crashing":
        sys.exit(1)
    if WAY == "held":
        wait_for(sys.argv[3])
    with socketserver.ThreadingUnixStreamServer(sys.argv[-1], Handler) as server:
        server.daemon_threads = True
        say("info", "ready", phase="ready")
        server.serve_forever()

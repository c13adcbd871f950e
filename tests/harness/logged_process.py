"""A real process whose output is read, line by line, from its start to its end."""

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any


@dataclass(frozen=True)
class Event:
    """One line on stderr; `fields` is empty when the line is not a JSON object."""

    text: str
    fields: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> "Event":
        try:
            value = json.loads(text)
        except ValueError:
            return cls(text)
        if not isinstance(value, dict):
            return cls(text)
        # What a worker logs is one level down.
        nested = value.get("fields")
        return cls(text, {**nested, **value} if isinstance(nested, dict) else value)

    def __getitem__(self, name: str) -> object:
        return self.fields.get(name)


class LoggedProcess:
    """Starts at once; `close` ends it, whatever state it is in."""

    def __init__(
        self, arguments: Sequence[str | Path], environment: Mapping[str, str], directory: Path
    ) -> None:
        self.name = Path(arguments[0]).name
        self.events: list[Event] = []
        self.output: list[str] = []
        self._changed = threading.Condition()
        self._open_streams = 2
        self._popen = subprocess.Popen(
            arguments,
            env=environment,
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._popen.stdout is not None
        assert self._popen.stderr is not None
        self._readers = [
            self._read(self._popen.stdout, self.output.append),
            self._read(self._popen.stderr, lambda text: self.events.append(Event.parse(text))),
        ]

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def log(self) -> str:
        with self._changed:
            return "\n".join([*self.output, *(event.text for event in self.events)])

    def is_alive(self) -> bool:
        return self._popen.poll() is None

    def wait_for(self, what: str, match: Callable[[Event], bool], seconds: float = 120) -> Event:
        """Wait for the first line that matches, earlier ones included."""
        deadline = time.monotonic() + seconds
        seen = 0
        with self._changed:
            while True:
                for event in self.events[seen:]:
                    if match(event):
                        return event
                seen = len(self.events)
                left = deadline - time.monotonic()
                if self._open_streams == 0 or left <= 0:
                    why = "ended" if self._open_streams == 0 else f"took over {seconds} s"
                    log = "\n".join(event.text for event in self.events[-40:])
                    raise AssertionError(f"{self.name} {why} before {what}; its log:\n{log}")
                self._changed.wait(left)

    def wait_for_news(self, seconds: float) -> None:
        """Wait for the next line or the end of output, for so long at most: the pace of a poll."""
        with self._changed:
            if self._open_streams > 0:
                self._changed.wait(seconds)
                return
        # Nothing can wake this any more, so only the time limit paces the caller.
        time.sleep(seconds)

    def wait_for_exit(self, seconds: float = 120) -> int:
        """Wait for the end and for the last line; the exit code is negative after a signal."""
        try:
            code = self._popen.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"{self.name} did not end within {seconds} s; its log:\n{self.log}"
            ) from None
        for reader in self._readers:
            reader.join(10)
        return code

    def send(self, number: signal.Signals) -> None:
        self._popen.send_signal(number)

    def close(self, grace: float = 30) -> None:
        """End it by SIGTERM, then by SIGKILL."""
        if self.is_alive():
            self._popen.terminate()
            try:
                self._popen.wait(grace)
            except subprocess.TimeoutExpired:
                self._popen.kill()
                self._popen.wait()
        for reader in self._readers:
            reader.join(10)

    def _read(self, stream: IO[bytes], keep: Callable[[str], None]) -> threading.Thread:
        def run() -> None:
            with stream:
                for line in stream:
                    with self._changed:
                        keep(line.decode(errors="replace").rstrip("\n"))
                        self._changed.notify_all()
            with self._changed:
                self._open_streams -= 1
                self._changed.notify_all()

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)

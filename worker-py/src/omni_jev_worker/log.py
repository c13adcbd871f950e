"""Log lines: one JSON object a line on standard error, for the supervisor to read.

A line has ``level`` (debug, info, warning, error), ``message``, mostly a ``phase`` of the worker's
start, and fields. On a terminal the same is written as plain text. Whatever libraries print or log
goes the same way, so standard output stays unused and no line escapes the format.

Bodies, queries, keys and client texts are never passed here.
"""

import io
import json
import logging
import sys
import traceback
import warnings
from types import TracebackType
from typing import Any, Final, TextIO

_LOGGER: Final = logging.getLogger("omni_jev_worker")
_FIELDS: Final = "omni_jev_fields"
_LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40}

LEVELS: Final = tuple(_LEVELS)
"""The levels that ``--log-level`` takes."""


def tells_debug() -> bool:
    """Say whether `debug` does anything, where making its fields would cost time."""
    return _LOGGER.isEnabledFor(logging.DEBUG)


def debug(message: str, **fields: Any) -> None:
    """Log for someone who looks for a fault."""
    _LOGGER.debug(message, extra={_FIELDS: fields})


def info(message: str, **fields: Any) -> None:
    """Log what happened; ``phase=`` names the part of the start that it belongs to."""
    _LOGGER.info(message, extra={_FIELDS: fields})


def warning(message: str, **fields: Any) -> None:
    """Log what works, but not as asked."""
    _LOGGER.warning(message, extra={_FIELDS: fields})


def error(message: str, **fields: Any) -> None:
    """Log what failed. The last such line of a process says why it ended."""
    _LOGGER.error(message, extra={_FIELDS: fields})


def relay(level: str, message: str, **fields: Any) -> None:
    """Log at a level by its name, such as what another process has logged."""
    _LOGGER.log(_LEVELS.get(level, logging.INFO), message, extra={_FIELDS: fields})


def where(fault: BaseException) -> str:
    """Name an exception and the places it came through, without its text.

    The text of an exception may quote what a client sent, so it stays out of the log.
    """
    frames = traceback.extract_tb(fault.__traceback__)[-8:]
    path = " > ".join(f"{frame.filename.rsplit('/', 1)[-1]}:{frame.lineno}" for frame in frames)
    return f"{type(fault).__name__} at {path}" if path else type(fault).__name__


def set_up(level: str, stream: TextIO | None = None) -> None:
    """Send every log line, warning and print of this process to ``stream`` in one format."""
    out = stream if stream is not None else sys.stderr
    handler = logging.StreamHandler(out)
    handler.setFormatter(_Text() if out.isatty() else _Json())
    root = logging.getLogger()
    root.handlers = [handler]
    # Libraries speak at warning and above: their chatter is not about this worker's work.
    root.setLevel(logging.WARNING)
    _LOGGER.setLevel(_LEVELS[level])
    warnings.showwarning = _show_warning
    sys.stdout = _Prints()
    sys.excepthook = _show_crash


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {"level": _level(record), "message": _message(record)}
        if record.name != _LOGGER.name:
            line["source"] = record.name
        line.update(getattr(record, _FIELDS, {}))
        return json.dumps(line, ensure_ascii=True, default=str)


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = getattr(record, _FIELDS, {})
        shown = "".join(f" {key}={value}" for key, value in fields.items())
        return f"{_level(record):7} {_message(record)}{shown}"


def _level(record: logging.LogRecord) -> str:
    return "error" if record.levelno >= logging.ERROR else record.levelname.lower()


def _message(record: logging.LogRecord) -> str:
    message = record.getMessage()
    if record.exc_info and record.exc_info[1] is not None:
        return f"{message} ({where(record.exc_info[1])})"
    return message


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,  # noqa: ARG001 (the signature is Python's)
    line: str | None = None,  # noqa: ARG001
) -> None:
    place = f"{filename.rsplit('/', 1)[-1]}:{lineno}"
    warning(" ".join(str(message).split()), source=f"{category.__name__} at {place}")


def _show_crash(
    kind: type[BaseException],  # noqa: ARG001 (the signature is Python's)
    fault: BaseException,
    trace: TracebackType | None,  # noqa: ARG001
) -> None:
    error(f"the worker crashed: {where(fault)}")


class _Prints(io.TextIOBase):
    """Stands in for standard output and logs each line that a library prints."""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        for line in text.splitlines():
            if line.strip():
                warning(line.strip(), source="print")
        return len(text)

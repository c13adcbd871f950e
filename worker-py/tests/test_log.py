"""Log lines: one JSON object each, whoever speaks, and no text of a fault."""

import io
import json
import logging
import sys
import warnings
from collections.abc import Iterator

import pytest

from omni_jev_worker import log


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """The log as it would be on standard error, with the process put right again at the end."""
    root = logging.getLogger()
    kept = (root.handlers, root.level, warnings.showwarning, sys.stdout, sys.excepthook)
    stream = io.StringIO()
    log.set_up("info", stream)
    yield stream
    root.handlers, _, warnings.showwarning, sys.stdout, sys.excepthook = kept
    root.setLevel(kept[1])
    logging.getLogger("omni_jev_worker").setLevel(logging.NOTSET)


def read(stream: io.StringIO) -> list[dict[str, str]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_has_a_level_a_message_and_its_fields(lines: io.StringIO) -> None:
    log.info("loading 환불\nnow", phase="load", ms=3)
    assert read(lines) == [
        {"level": "info", "message": "loading 환불\nnow", "phase": "load", "ms": 3}
    ]


def test_lines_under_the_level_are_left_out(lines: io.StringIO) -> None:
    log.debug("details")
    assert read(lines) == []


def test_a_librarys_print_log_and_warning_take_the_same_form(lines: io.StringIO) -> None:
    # Again, because pytest puts its own standard output in place when the test begins.
    log.set_up("info", lines)
    print("Warning: CUDA requested but not available.")
    logging.getLogger("some.library").warning("odd")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("old", stacklevel=1)
    found = read(lines)
    assert [line["level"] for line in found] == ["warning"] * 3
    assert [line["message"] for line in found] == [
        "Warning: CUDA requested but not available.",
        "odd",
        "old",
    ]


def test_a_fault_is_logged_by_type_and_place_and_not_by_its_text(lines: io.StringIO) -> None:
    try:
        raise KeyError("what the client wrote")
    except KeyError as fault:
        log.error(f"failed: {log.where(fault)}")
        logging.getLogger("library").exception("failed")
    text = lines.getvalue()
    assert text.count("KeyError at test_log.py") == 2
    assert "client wrote" not in text

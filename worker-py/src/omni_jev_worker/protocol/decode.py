"""Bytes of a body to a JSON value, within bounds: content coding, UTF-8, JSON (RFC 8259)."""

import json
import re
import zlib
from itertools import islice
from typing import Any, Final

import zstandard

from omni_jev_worker.protocol.limits import Limits
from omni_jev_worker.protocol.problems import (
    INVALID_REQUEST,
    Problem,
    invalid,
    refused,
    too_large,
)

ENCODINGS: Final = ("gzip", "deflate", "zstd")

# A whole JSON string, or one that the end of the body cuts off. It matches at every quote, and
# never backtracks, so the time is linear whatever a client sends.
_STRING: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
_BRACKET: Final = re.compile(rb"[\[\]{}]")
_MAX_ZSTD_WINDOW: Final = 8 * 1024 * 1024


def decompress(body: bytes, encoding: str, limits: Limits) -> bytes:
    """Undo a ``Content-Encoding``; never produce more than ``limits.body_bytes``.

    Raises 415 for a coding that is not known, 400 for data that is not in it, 413 past the limit.
    """
    coding = encoding.strip().lower()
    if coding in ("", "identity"):
        return body
    if coding not in ENCODINGS:
        known = ", ".join(ENCODINGS)
        raise refused(
            415, INVALID_REQUEST, f"this Content-Encoding is not supported; supported: {known}"
        )
    try:
        data = _unpack(body, coding, limits.body_bytes + 1)
    except (zlib.error, zstandard.ZstdError, EOFError):
        raise refused(400, INVALID_REQUEST, f"the body is not valid {coding} data") from None
    if len(data) > limits.body_bytes:
        raise body_too_large(limits)
    return data


def body_too_large(limits: Limits) -> Problem:
    """Make the 413 for a body past the limit."""
    return too_large(f"the request body is larger than {limits.body_bytes} bytes")


def parse(body: bytes, limits: Limits) -> Any:
    """Read a JSON value. Raises 422 where it is none or too deep, 413 for too many values.

    Bodies are UTF-8 only, and the values NaN and Infinity, which are no JSON, are refused.
    """
    _check_structure(body, limits)
    try:
        # Decoded here because json.loads would let lone surrogates in UTF-8 pass.
        text = body.decode("utf-8")
    except UnicodeDecodeError as fault:
        raise invalid((fault.start,), "the body is not UTF-8", "json_invalid") from None
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as fault:
        raise invalid((fault.pos,), "JSON decode error", "json_invalid") from None
    except (ValueError, RecursionError):
        # A number of thousands of digits, or a constant that is no JSON.
        raise invalid((), "a number in the body cannot be read", "json_invalid") from None


def _check_structure(body: bytes, limits: Limits) -> None:
    """Bound depth and number of values before the parser builds any of them."""
    opened = body.count(b"[") + body.count(b"{")
    if opened <= limits.depth and opened + body.count(b",") <= limits.values:
        return
    bare = _STRING.sub(b"", body)
    opened = bare.count(b"[") + bare.count(b"{")
    if opened > limits.depth and _is_deep(bare, limits):
        raise invalid((), f"the body is nested deeper than {limits.depth}", "too_deep")
    if opened + bare.count(b",") > limits.values:
        raise too_large(f"the request holds more than {limits.values} values")


def _is_deep(bare: bytes, limits: Limits) -> bool:
    """Look for a value nested too deep, among no more brackets than a body may have."""
    depth = 0
    for match in islice(_BRACKET.finditer(bare), 2 * limits.values):
        depth += 1 if match.group() in b"[{" else -1
        if depth > limits.depth:
            return True
    return False


def _refuse_constant(name: str) -> Any:
    raise ValueError(name)


def _unpack(body: bytes, coding: str, most: int) -> bytes:
    if coding == "zstd":
        # The frame's own claim of its size is not believed; the window is bounded too.
        decoder = zstandard.ZstdDecompressor(max_window_size=_MAX_ZSTD_WINDOW)
        with decoder.stream_reader(body, read_across_frames=True) as reader:
            data = bytes(reader.read(most))
        if not data or (len(data) < most and not _ends_whole(body)):
            raise EOFError
        return data
    if coding == "gzip":
        return _inflate(body, zlib.MAX_WBITS | 16, most)
    try:
        return _inflate(body, zlib.MAX_WBITS, most)
    except zlib.error:
        # "deflate" means zlib (RFC 9110, 8.4.1.2), but some clients send it bare.
        return _inflate(body, -zlib.MAX_WBITS, most)


def _inflate(body: bytes, window: int, most: int) -> bytes:
    decoder = zlib.decompressobj(window)
    data = decoder.decompress(body, most)
    if len(data) < most and not decoder.eof:
        raise EOFError
    return data


def _ends_whole(body: bytes) -> bool:
    """Say whether a zstd body ends at the end of a frame: the stream reader does not tell."""
    rest = body
    while rest:
        decoder = zstandard.ZstdDecompressor(max_window_size=_MAX_ZSTD_WINDOW).decompressobj()
        decoder.decompress(rest)
        if not decoder.eof:
            return False
        rest = decoder.unused_data
    return True

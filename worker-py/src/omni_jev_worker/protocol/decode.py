"""Bytes of a body to a JSON value, within bounds: content coding, UTF-8, JSON (RFC 8259)."""

import json
import os
import re
import zlib
from collections.abc import Sequence
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
_ALIASES: Final = {"x-gzip": "gzip"}  # RFC 9110, 8.4.1.3

# A whole JSON string, or one that the end of the body cuts off. It matches at every quote, and
# never backtracks, so the time is linear whatever a client sends.
_STRING: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
# Reading the digits of an integer takes time that grows with their square; no number has so many.
_MAX_DIGITS: Final = 400
_LONG_NUMBER: Final = b"0" * _MAX_DIGITS
_DIGITS_TO_ZERO: Final = bytes(0x30 if 0x30 <= byte <= 0x39 else 0x20 for byte in range(256))
_BRACKET: Final = re.compile(rb"[\[\]{}]")
_MAX_ZSTD_WINDOW: Final = 8 * 1024 * 1024
# Each member costs a decoder and a copy of what follows it.
_MAX_GZIP_MEMBERS: Final = 64

# A frame that is put after every zstd body: it comes out whole only where the body ends with a
# whole frame. Random, so that no body can hold it.
_END: Final = os.urandom(16)
_END_FRAME: Final = zstandard.ZstdCompressor(write_checksum=True).compress(_END)


def codings(headers: Sequence[str]) -> list[str]:
    """Give the codings that the ``Content-Encoding`` lines of a request name, in their order.

    Several lines count as one list (RFC 9110, 5.3); `identity` says nothing and is left out.
    """
    named = [coding.strip().lower() for line in headers for coding in line.split(",")]
    return [_ALIASES.get(coding, coding) for coding in named if coding not in ("", "identity")]


def decompress(body: bytes, applied: Sequence[str], limits: Limits) -> bytes:
    """Undo the coding that `codings` gave; never produce more than ``limits.body_bytes``.

    Takes time linear in the body. Raises 415 for a coding that is not known or more than one, 400
    for data that is not in it, 413 past the limit.
    """
    if not applied:
        return body
    if len(applied) > 1 or applied[0] not in ENCODINGS:
        known = ", ".join(ENCODINGS)
        message = f"this Content-Encoding is not supported; supported is one of: {known}"
        raise refused(415, INVALID_REQUEST, message)
    coding = applied[0]
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
    # A call for each integer costs time too: only where one may be long.
    long_numbers = _LONG_NUMBER in body.translate(_DIGITS_TO_ZERO)
    try:
        return (_CAREFUL_DECODER if long_numbers else _DECODER).decode(text)
    except json.JSONDecodeError as fault:
        raise invalid((fault.pos,), "JSON decode error", "json_invalid") from None
    except (ValueError, RecursionError):
        # A number of hundreds of digits, or a constant that is no JSON.
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


def _short_integer(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise ValueError(digits[:_MAX_DIGITS])
    return int(digits)


def _refuse_constant(name: str) -> Any:
    raise ValueError(name)


# `json.loads` makes one at each call.
_DECODER: Final = json.JSONDecoder(parse_constant=_refuse_constant)
_CAREFUL_DECODER: Final = json.JSONDecoder(
    parse_constant=_refuse_constant, parse_int=_short_integer
)


def _unpack(body: bytes, coding: str, most: int) -> bytes:
    """Give the first ``most`` bytes of the content. Raises where the body is not all in a coding.

    A body that has more content than that is not looked at any further.
    """
    if not body:
        raise EOFError
    if coding == "zstd":
        return _unpack_zstd(body, most)
    if coding == "gzip":
        return _inflate(body, zlib.MAX_WBITS | 16, most, members=_MAX_GZIP_MEMBERS)
    try:
        return _inflate(body, zlib.MAX_WBITS, most)
    except zlib.error:
        # "deflate" means zlib (RFC 9110, 8.4.1.2), but some clients send it bare.
        return _inflate(body, -zlib.MAX_WBITS, most)


def _unpack_zstd(body: bytes, most: int) -> bytes:
    # One decoder for all frames, of which a body can have hundreds of thousands; it does not tell
    # whether the last one was whole. A frame's own claim of its size is not believed, and the
    # window is bounded.
    decoder = zstandard.ZstdDecompressor(max_window_size=_MAX_ZSTD_WINDOW)
    with decoder.stream_reader(body + _END_FRAME, read_across_frames=True) as reader:
        data = bytes(reader.read(most + len(_END)))
    if len(data) == most + len(_END):
        return data[:most]
    if not data.endswith(_END):
        raise EOFError
    return data[: -len(_END)]


def _inflate(body: bytes, window: int, most: int, *, members: int = 1) -> bytes:
    """Undo DEFLATE in one or several members, one after the other (RFC 1952, 2.2)."""
    data = b""
    rest = body
    for _ in range(members):
        decoder = zlib.decompressobj(window)
        data += decoder.decompress(rest, most - len(data))
        if len(data) == most:
            return data
        if not decoder.eof:
            raise EOFError
        rest = decoder.unused_data
        if not rest:
            return data
    # More than anyone sends, or bytes that belong to nothing.
    raise EOFError

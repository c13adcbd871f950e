"""Bytes of a body: content codings, UTF-8, JSON, and bounds on each."""

import gzip
import json
import time
import zlib
from collections.abc import Callable
from typing import Any

import pytest
import zstandard

from omni_jev_worker.protocol import decode
from omni_jev_worker.protocol.limits import Limits
from omni_jev_worker.protocol.problems import Problem

LIMITS = Limits()
TEXT = json.dumps({"state": "Bitte um Rückerstattung 😡", "questions": {}}).encode()


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "zstd": zstandard.compress,
}


def status_of(body: bytes, encoding: str = "", limits: Limits = LIMITS) -> int:
    with pytest.raises(Problem) as caught:
        decode.parse(decode.decompress(body, decode.codings([encoding]), limits), limits)
    return caught.value.status


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("", TEXT),
        ("identity", TEXT),
        ("gzip", gzip.compress(TEXT)),
        ("GZIP ", gzip.compress(TEXT)),
        ("x-gzip", gzip.compress(TEXT)),
        ("identity, gzip", gzip.compress(TEXT)),
        ("gzip", gzip.compress(TEXT[:9]) + gzip.compress(b"") + gzip.compress(TEXT[9:])),
        ("deflate", zlib.compress(TEXT)),
        ("deflate", raw_deflate(TEXT)),
        ("zstd", zstandard.compress(TEXT)),
        ("zstd", zstandard.compress(TEXT[:9]) + zstandard.compress(TEXT[9:])),
    ],
)
def test_each_content_coding_is_undone(encoding: str, body: bytes) -> None:
    assert decode.decompress(body, decode.codings([encoding]), LIMITS) == TEXT


@pytest.mark.parametrize("encoding", ["br", "gzip, zstd", "gzip, gzip", "compress", "x", "\xff"])
def test_an_unknown_content_coding_is_a_415(encoding: str) -> None:
    assert status_of(TEXT, encoding) == 415


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("gzip", TEXT),
        ("gzip", b""),
        ("gzip", gzip.compress(TEXT)[:-9]),
        ("deflate", b"\xff\xff"),
        ("zstd", TEXT),
        ("zstd", b""),
        ("zstd", zstandard.compress(TEXT)[:-5]),
        ("zstd", zstandard.compress(TEXT) + zstandard.compress(TEXT)[:-1]),
        ("gzip", gzip.compress(TEXT) + gzip.compress(TEXT)[:-1]),
        *(
            (encoding, pack(TEXT) + junk)
            for encoding, pack in PACKERS.items()
            for junk in (b"\0", b"J", b"JUNKJUNK")
        ),
        ("deflate", raw_deflate(TEXT) + b"JUNK"),
        ("deflate", zlib.compress(TEXT) + zlib.compress(TEXT)),
        ("zstd", zstandard.compress(TEXT) + b"\x50\x2a\x4d\x18\xff\0\0\0"),
    ],
)
def test_data_that_is_not_in_its_coding_is_a_400(encoding: str, body: bytes) -> None:
    assert status_of(body, encoding) == 400


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "zstd"])
def test_a_small_body_that_decodes_to_a_huge_one_is_a_413(encoding: str) -> None:
    bomb = b" " * 50_000_000
    assert status_of(PACKERS[encoding](bomb), encoding) == 413


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_a_body_of_the_largest_size_is_read_and_one_byte_more_is_a_413(encoding: str) -> None:
    most = LIMITS.body_bytes
    pack = PACKERS[encoding]
    whole = pack(b" " * 9) + pack(b" " * (most - 9))
    assert decode.decompress(whole, [encoding], LIMITS) == b" " * most
    assert status_of(whole + pack(b" "), encoding) == 413


class Counted:
    """Counts the decoders that are made, and the bytes that each is given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.decoders = 0
        self.bytes = 0
        make_zstd, make_zlib = zstandard.ZstdDecompressor, zlib.decompressobj
        counted = self

        class Zstd:
            def __init__(self, **settings: Any) -> None:
                counted.decoders += 1
                self._inner = make_zstd(**settings)

            def stream_reader(self, source: bytes, **settings: Any) -> Any:
                counted.bytes += len(source)
                return self._inner.stream_reader(source, **settings)

        class Zlib:
            def __init__(self, window: int) -> None:
                counted.decoders += 1
                self._inner = make_zlib(window)

            def decompress(self, data: bytes, most: int) -> bytes:
                counted.bytes += len(data)
                return self._inner.decompress(data, most)

            def __getattr__(self, name: str) -> Any:
                return getattr(self._inner, name)

        monkeypatch.setattr(zstandard, "ZstdDecompressor", Zstd)
        monkeypatch.setattr(zlib, "decompressobj", Zlib)


def test_a_zstd_body_of_225_000_frames_is_read_once_by_one_decoder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    body = zstandard.compress(TEXT) + zstandard.compress(b"") * 225_000
    counted = Counted(monkeypatch)
    assert decode.decompress(body, ["zstd"], LIMITS) == TEXT
    assert counted.decoders == 1
    assert counted.bytes < len(body) + 100


def test_a_gzip_body_of_100_000_members_is_a_400_after_a_few_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    body = gzip.compress(TEXT) + gzip.compress(b"") * 100_000
    counted = Counted(monkeypatch)
    assert status_of(body, "gzip") == 400
    assert counted.decoders <= 64
    assert counted.bytes <= 64 * len(body)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"refund",
        b"{",
        b'{"state":',
        b"{} {}",
        b"\xef\xbb\xbf{}",
        b'{"a":"\xff"}',
        b'{"a":"\xed\xa0\x80"}',
        '{"a":1}'.encode("utf-16"),
        b"NaN",
        b'{"a":-Infinity}',
        b"[1" + b"0" * 5000 + b"]",
    ],
)
def test_a_body_that_is_no_json_is_a_422(body: bytes) -> None:
    assert status_of(body) == 422


@pytest.mark.parametrize("depth", [101, 1_000, 100_000])
@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}")])
def test_deep_nesting_is_a_422(depth: int, opening: bytes, closing: bytes) -> None:
    assert status_of(opening * depth + b"1" + closing * depth) == 422
    assert status_of(opening * depth) == 422


def test_nesting_within_the_limit_is_read() -> None:
    assert decode.parse(b"[" * 100 + b"]" * 100, LIMITS) is not None


def test_brackets_inside_of_strings_are_not_nesting() -> None:
    body = json.dumps({"a": '\\"[[{' * 1000, "b": "]" * 1000}).encode()
    assert decode.parse(body, LIMITS)["b"] == "]" * 1000


def test_an_integer_of_more_than_400_digits_is_a_422() -> None:
    def body(digits: int) -> bytes:
        # In a text they are no number.
        return b'{"state":"' + b"1" * 9000 + b'","n":' + b"1" * digits + b"}"

    assert decode.parse(body(400), LIMITS)["n"] == int("1" * 400)
    assert status_of(body(401)) == 422
    assert status_of(body(5000)) == 422


def test_too_many_values_are_a_413() -> None:
    assert status_of(b"[" + b"[]," * 600_000 + b"1]") == 413


@pytest.mark.parametrize(
    "body",
    [b'"\\' * 1_000_000, b'"' * 2_000_001, b"[]" * 1_000_000, b"{" * 2_000_000, b"," * 2_000_000],
)
def test_no_body_makes_its_check_slow(body: bytes) -> None:
    started = time.process_time()
    status_of(body)
    # 10 to 100 ms; the bound is wide for a busy machine and far from anything quadratic.
    assert time.process_time() - started < 3

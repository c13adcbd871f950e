"""Flags and variables: one line that names what is wrong, and the exit code that says whose."""

import sys

import pytest

from omni_jev_worker import caches, settings
from omni_jev_worker.exits import BAD_CONFIGURATION, BAD_FLAGS, Refusal
from omni_jev_worker.tuning import PLAIN, Tuning


def parse(*flags: str, **variables: str) -> settings.Settings:
    return settings.parse(flags, variables)


def refusal(*flags: str, **variables: str) -> Refusal:
    with pytest.raises(Refusal) as caught:
        parse(*flags, **variables)
    assert "\n" not in str(caught.value)
    return caught.value


def test_without_flags_it_serves_the_demo_on_loopback() -> None:
    asked = parse()
    assert (asked.model, asked.device, asked.host, asked.port) == (
        "demo",
        "auto",
        "127.0.0.1",
        8000,
    )
    assert asked.uds is None
    assert asked.api_key is None


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--device", "tpu"], "--device"),
        (["--device"], "--device"),
        (["--port", "http"], "--port"),
        (["--port", "65536"], "--port"),
        (["--port", "-1"], "--port"),
        (["--port", "٣"], "--port"),
        (["--threads", "0"], "--threads"),
        (["--threads", "two"], "--threads"),
        (["--max-queue", "0"], "--max-queue"),
        (["--drain-timeout", "nan"], "--drain-timeout"),
        (["--request-timeout", "0"], "--request-timeout"),
        (["--keep-warm", "0"], "--keep-warm"),
        (["--keep-warm", "inf"], "--keep-warm"),
        (["--release-memory", "5GB"], "--release-memory"),
        (["--release-memory", "-1"], "--release-memory"),
        (["--length-buckets", "on"], "--length-buckets"),
        (["--length-buckets", "64,32"], "--length-buckets"),
        (["--length-buckets", "0,32"], "--length-buckets"),
        (["--length-buckets", "64,64"], "--length-buckets"),
        (["--drain-timeout", "-1"], "--drain-timeout"),
        (["--log-level", "loud"], "--log-level"),
        (["--dialect", "klingon"], "--dialect"),
        (["--alias", ""], "--alias"),
        (["--max-questions", "0"], "--max-questions"),
        (["--max-states", "-1"], "--max-states"),
        (["--max-state-characters", "many"], "--max-state-characters"),
        (["--max-body-bytes", "16777217"], "--max-body-bytes"),
        (["--weights", "fp8"], "--weights"),
        (["--model", ""], "--model"),
        (["--host", ""], "--host"),
        (["--host", "a..b"], "--host"),
        (["--host", "a" * 300], "--host"),
        (["--host", "\udcff"], "--host"),
        (["--no-such-flag"], "--no-such-flag"),
        (["--mod", "demo"], "--mod"),
        (["stray"], "no flag takes"),
        (["--uds", "/tmp/x", "--port", "1"], "--port"),
        (["--uds", "/tmp/x", "--host", "::1"], "--host"),
        (["--require-device"], "--require-device"),
        (["--require-device", "--device", "auto"], "--require-device"),
        (["--compile", "--device", "cpu"], "--compile"),
        (["--weights", "fp16", "--device", "cpu"], "--weights fp16"),
        (["--weights", "bf16", "--device", "cuda"], "--weights bf16"),
        (["--weights", "bf16", "--compile"], "--weights bf16"),
        (["--require-compile"], "--require-compile"),
        (["--compile-in-background"], "--compile-in-background needs --compile"),
        (["--compile", "--compile-in-background", "--require-compile"], "contradict each other"),
        (["--require-parity"], "--require-parity"),
        (["--recheck-parity", "60"], "--recheck-parity needs --compile, --weights or --engine"),
        (["--engine", "onnx", "--recheck-parity", "often"], "--recheck-parity"),
        (["--compile-cache", ""], "--compile-cache"),
        (["--revision", "55cf4c4"], "--revision"),
        (["--model", "/folder", "--revision", "55cf4c4"], "--revision"),
    ],
)
def test_a_wrong_or_contradictory_flag_is_named_and_exits_64(flags: list[str], named: str) -> None:
    refused = refusal(*flags)
    assert named in str(refused)
    assert refused.code == BAD_FLAGS


def test_limits_are_upstreams_unless_set() -> None:
    limits = parse().limits
    assert (limits.questions, limits.states, limits.state_characters) == (64, 64, 50_000)
    assert limits.body_bytes == 2 * 1024 * 1024
    changed = parse("--max-questions", "3", "--max-body-bytes", "999").limits
    assert (changed.questions, changed.body_bytes, changed.states) == (3, 999, 64)


def test_the_dialect_is_upstreams_and_nothing_is_refused_for_its_length_unless_asked() -> None:
    asked = parse()
    assert (asked.dialect, asked.reject_truncated, asked.alias) == ("laya", False, None)
    asked = parse("--dialect", "jev", "--reject-truncated", "--alias", "english")
    assert (asked.dialect, asked.reject_truncated, asked.alias) == ("jev", True, "english")


def test_a_model_runs_as_laya_runs_it_unless_asked_otherwise() -> None:
    asked = parse()
    assert asked.tuning == PLAIN
    assert not asked.require_compile
    assert not asked.require_parity
    asked = parse("--compile", "--weights", "fp16", "--require-compile", "--require-parity")
    assert asked.tuning == Tuning("fp16", compiled=True)
    assert asked.require_compile
    assert asked.require_parity


def test_bf16_is_refused_with_the_reason_on_a_processor_that_does_not_compute_in_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("omni_jev_worker.processors.has_native_bf16", lambda: False)
    refused = refusal("--weights", "bf16")
    assert "does not compute in bf16" in str(refused)
    assert refused.code == BAD_CONFIGURATION
    monkeypatch.setattr("omni_jev_worker.processors.has_native_bf16", lambda: True)
    assert parse("--weights", "bf16").tuning == Tuning("bf16")


def test_what_the_compiler_makes_is_kept_in_the_users_cache_folder_unless_a_folder_is_named() -> (
    None
):
    assert parse("--compile-cache", "/mine", HOME="/h").compile_cache == "/mine"
    assert parse(HOME="/h").compile_cache == caches.compile_folder({"HOME": "/h"}, sys.platform)
    for variables, platform, folder in (
        ({"HOME": "/h"}, "linux", "/h/.cache/omni-jev/compile"),
        ({"HOME": "/h", "XDG_CACHE_HOME": "/c"}, "linux", "/c/omni-jev/compile"),
        ({"HOME": "/h", "XDG_CACHE_HOME": "c"}, "linux", "/h/.cache/omni-jev/compile"),
        ({"HOME": "/Users/ann"}, "darwin", "/Users/ann/Library/Caches/omni-jev/compile"),
    ):
        assert caches.compile_folder(variables, platform) == folder


def test_a_required_device_that_the_system_cannot_have_is_refused_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    refused = refusal("--device", "mps", "--require-device")
    assert "mps" in str(refused)
    assert refused.code == BAD_CONFIGURATION


@pytest.mark.parametrize("key", ["secret-key\n", " secret-key", "secret-key\x07", "secret-\x7fkey"])
def test_a_key_that_no_header_can_carry_is_refused_without_showing_it(key: str) -> None:
    refused = refusal(LAYA_API_KEY=key)
    assert "LAYA_API_KEY" in str(refused)
    assert "secret-" not in str(refused)
    assert refused.code == BAD_CONFIGURATION


def test_an_empty_key_asks_for_no_key() -> None:
    assert parse(LAYA_API_KEY="").api_key is None


def test_the_instance_is_the_supervisors_or_a_new_one() -> None:
    assert parse(OMNI_JEV_INSTANCE="abc").instance == "abc"
    assert parse().instance != parse().instance


def test_each_variable_of_laya_serve_that_is_not_read_is_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    settings.warn_of_unread_variables({"LAYA_PORT": "1", "LAYA_AUTO_TASK": "1", "LAYA_DEVICE": ""})
    text = caplog.text
    assert "LAYA_PORT" in text
    assert "LAYA_AUTO_TASK" in text
    assert "LAYA_DEVICE" not in text


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--threads", "hunter2"], "--threads"),
        (["--port", "hunter2"], "--port"),
        (["--host", "hunter2" + "x" * 80], "--host"),
        (["--max-queue", "hunter2"], "--max-queue"),
        (["--drain-timeout", "hunter2"], "--drain-timeout"),
        (["--device", "hunter2 (choose from x)"], "--device"),
        (["--compile=hunter2"], "--compile"),
        (["--nonsense", "hunter2"], "--nonsense"),
        (["--nonsense=hunter2"], "--nonsense"),
        (["hunter2"], "no flag takes"),
    ],
)
def test_a_refused_flag_is_named_and_its_value_is_not_repeated(
    flags: list[str], named: str
) -> None:
    refused = refusal(*flags)
    assert refused.code == BAD_FLAGS
    assert named in str(refused)
    assert "hunter2" not in str(refused)


@pytest.mark.parametrize(
    ("given", "lengths"), [("auto", "auto"), ("off", "off"), ("64,128,512", (64, 128, 512))]
)
def test_length_buckets_are_a_word_or_rising_lengths(given: str, lengths: object) -> None:
    assert parse("--length-buckets", given).length_buckets == lengths


@pytest.mark.parametrize(
    ("given", "size"), [("1000", 1000), ("3KiB", 3072), ("5MiB", 5 * 2**20), ("5GiB", 5 * 2**30)]
)
def test_a_size_is_in_bytes_or_binary_units(given: str, size: int) -> None:
    assert parse("--release-memory", given).release_memory == size


def test_what_costs_or_changes_something_is_off_unless_asked_for() -> None:
    asked = parse()
    assert (asked.keep_warm, asked.release_memory, asked.request_timeout) == (None, None, None)
    assert asked.length_buckets == "auto"
    assert asked.recheck_parity is None
    assert parse("--recheck-parity", "0").recheck_parity is None
    assert parse("--engine", "onnx", "--recheck-parity", "600").recheck_parity == 600


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--engine", "tensorrt"], "--engine"),
        (["--weights", "int8"], "--weights int8 needs --engine onnx; torch has fp32"),
        (
            ["--engine", "onnx", "--weights", "fp16"],
            "needs --engine torch or mlx or coreml; onnx has fp32 and int8",
        ),
        (["--engine", "onnx", "--device", "cuda"], "--engine onnx runs on cpu, not on cuda"),
        (["--engine", "onnx", "--compile"], "--compile is for --engine torch"),
        (["--engine", "onnx", "--forward", "laya"], "--forward laya is for --engine torch"),
        (["--engine", "onnx", "--length-buckets", "64"], "--length-buckets is for --engine torch"),
        (["--takes-tokens", "0"], "--takes-tokens"),
    ],
)
def test_what_an_engine_does_not_do_is_refused_before_it_is_loaded(
    flags: list[str], named: str
) -> None:
    refused = refusal(*flags)
    assert refused.code == BAD_FLAGS
    assert named in str(refused)


def test_an_engine_has_its_device_and_its_artifacts_are_in_the_users_cache_folder() -> None:
    asked = parse("--engine", "onnx", "--weights", "int8", HOME="/home/me")
    assert asked.device == "cpu"
    assert asked.tuning == Tuning("int8", engine="onnx")
    assert str(asked.tuning) == "--engine onnx --weights int8"
    assert asked.artifacts == caches.artifacts_folder({"HOME": "/home/me"}, sys.platform)
    assert parse("--artifacts", "/else").artifacts == "/else"

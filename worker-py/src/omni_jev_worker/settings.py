"""What the worker was asked to do: flags and environment, checked, before anything is loaded."""

import argparse
import sys
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from omni_jev_worker import __version__, caches, flag_values, log, routing
from omni_jev_worker.contradictions import (
    IN_BACKGROUND,
    reject_contradictions,
    reject_what_cannot_be,
)
from omni_jev_worker.engines.names import DEVICES as PLACES
from omni_jev_worker.engines.names import ENGINES, TORCH
from omni_jev_worker.exits import bad_configuration
from omni_jev_worker.lane import Lane
from omni_jev_worker.parser import Parser
from omni_jev_worker.protocol.dialects import DIALECTS, LAYA
from omni_jev_worker.protocol.limits import Limits
from omni_jev_worker.tuning import FP32, PRECISIONS, Tuning

DEVICES: Final = ("auto", "mps", "cuda", "cpu")

# laya-serve's launcher reads these and this worker does not: whoever moves over must be told.
_UNREAD: Final = {
    "LAYA_DEVICE": "--device",
    "LAYA_MODELS": "--model",
    "LAYA_PRELOAD": "--preload",
    "LAYA_HOST": "--host",
    "LAYA_PORT": "--port",
    "LAYA_LOG_LEVEL": "--log-level",
    "LAYA_THREADS": "--threads",
    "LAYA_AUTO_TASK": None,
}

_DEFAULT_LIMITS: Final = Limits()
_LIMITS: Final = {
    "questions": ("--max-questions", "questions of a request"),
    "states": ("--max-states", "states of a batch"),
    "state_characters": ("--max-state-characters", "characters of a state"),
    "text_characters": ("--max-text-characters", "characters of an instruction or criterion"),
    "question_characters": ("--max-question-characters", "characters of all questions together"),
    "body_bytes": ("--max-body-bytes", "bytes of a body, as sent and decoded"),
}


LIMIT_FLAGS: Final = {field: flag for field, (flag, _) in _LIMITS.items()}
"""The flag of each field of `Limits`."""


@dataclass(frozen=True, slots=True)
class Settings:
    """One start of the worker, as asked for."""

    device: str
    """`auto` (CUDA if there, else MPS if there, else the CPU), or a device by name."""
    require_device: bool
    """Exit rather than serve from another device."""
    model: str
    """A checkpoint's name, or a folder."""
    revision: str | None
    """The commit, branch or tag of a hub checkpoint; none takes what the cache or `main` has."""
    host: str
    port: int
    """0 lets the system choose; the `ready` line says which."""
    uds: str | None
    """A Unix socket's path, instead of host and port."""
    log_level: str
    threads: int | None
    """Torch's threads on a CPU; none chooses them."""
    max_queue: int
    """Rows (questions) that may wait or run; more are answered 503."""
    request_timeout: float | None
    """Seconds that a request may take from its admission on; none leaves it to the client."""
    length_buckets: str | tuple[int, ...]
    """`auto`, `off`, or the lengths in tokens that inputs are padded to."""
    release_memory: int | None
    """The footprint in bytes past which cached memory is released; none never does it."""
    keep_warm: float | None
    """Idle seconds after which a tiny batch runs; none never does it."""
    recheck_parity: float | None
    """Seconds from one check of what the parity gate let pass to the next; none never checks."""
    tuning: Tuning
    """The precision of the weights, and whether the model is compiled."""
    require_compile: bool
    """Exit rather than serve uncompiled."""
    require_parity: bool
    """Exit rather than serve without what the parity gate refused."""
    compile_in_background: bool
    """Serve uncompiled until a second process has compiled."""
    compile_cache: str
    """The folder that keeps what the compiler made, for the next start."""
    artifacts: str
    """The folder that keeps what other engines than torch need of a checkpoint."""
    forward: str
    """`auto`, or `laya` for laya's own pass on the CPU too."""
    dialect: str
    """Whose answers and checks: one of `protocol.dialects.DIALECTS`."""
    reject_truncated: bool
    """Answer 422 to what does not fit the model's window, instead of cutting it."""
    alias: str | None
    """Another name that requests may call the default checkpoint by."""
    preload: tuple[str, ...]
    """Checkpoints that are prepared at the start besides the default: names, or folders."""
    max_loaded: int
    """How many checkpoints are loaded at a time, the default and the preloaded ones included."""
    routing: str
    """Whether a state's language chooses the checkpoint: one of `routing.WAYS`."""
    lane: Lane
    """What is taken where there are other workers for the rest."""
    limits: Limits
    """How much one request may hold."""
    drain_timeout: float
    """Seconds that requests in flight get after a request to stop."""
    api_key: bytes | None
    """The bearer key of `LAYA_API_KEY`; none serves everyone."""
    control_token: bytes | None
    """Proves that a request comes from the supervisor; none where there is no supervisor."""
    instance: str
    """Tells this process from the one before it on the same address."""


def parse(argv: Sequence[str], environment: Mapping[str, str]) -> Settings:
    """Read flags and environment.

    Raises `Refusal` naming the flag or variable at fault. ``--help`` and ``--version`` print and
    raise `SystemExit`.
    """
    flags = _parser().parse_args(argv)
    reject_contradictions(flags)
    reject_what_cannot_be(flags)
    return Settings(
        device=PLACES.get(flags.engine, flags.device or "auto"),
        require_device=flags.require_device,
        model=flags.model,
        revision=flags.revision,
        host=flags.host or "127.0.0.1",
        port=flags.port if flags.port is not None else 8000,
        uds=flags.uds,
        log_level=flags.log_level,
        threads=flags.threads,
        max_queue=flags.max_queue,
        request_timeout=flags.request_timeout,
        length_buckets=flags.length_buckets,
        release_memory=flags.release_memory,
        keep_warm=flags.keep_warm,
        recheck_parity=flags.recheck_parity or None,
        tuning=Tuning(flags.weights, flags.compile, flags.engine),
        require_compile=flags.require_compile,
        require_parity=flags.require_parity,
        compile_in_background=flags.compile_in_background,
        compile_cache=flags.compile_cache or caches.compile_folder(environment, sys.platform),
        artifacts=flags.artifacts or caches.artifacts_folder(environment, sys.platform),
        forward=flags.forward,
        dialect=flags.dialect,
        reject_truncated=flags.reject_truncated,
        alias=flags.alias,
        preload=tuple(dict.fromkeys(flags.preload)),
        max_loaded=max(flags.max_loaded, 1 + len(set(flags.preload))),
        routing=flags.routing,
        lane=Lane(tokens=flags.takes_tokens, questions=flags.takes_questions),
        limits=Limits(**{field: getattr(flags, field) for field in _LIMITS}),
        drain_timeout=flags.drain_timeout,
        api_key=_api_key(environment),
        control_token=environment.get("OMNI_JEV_CONTROL_TOKEN", "").encode() or None,
        instance=environment.get("OMNI_JEV_INSTANCE") or uuid.uuid4().hex,
    )


def warn_of_unread_variables(environment: Mapping[str, str]) -> None:
    """Log each variable of laya-serve's launcher that is set and has no effect here."""
    for name, flag in _UNREAD.items():
        if environment.get(name):
            instead = f"use {flag}" if flag else "nothing here replaces it"
            log.warning(f"{name} is set, but this worker does not read it: {instead}")


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="omni_jev_worker",
        description="Serve POST /v1/systemone, GET /v1/models and GET /health with a Laya model.",
        epilog="Exit codes: 0 asked to stop, 64 a bad flag, 78 a configuration that cannot work.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--device", choices=DEVICES, help="default: cuda if there, else mps if there, else cpu")
    add(
        "--require-device",
        action="store_true",
        help="exit 78 when the model is not on --device, instead of serving from the CPU",
    )
    add(
        "--model",
        default="demo",
        metavar="NAME|FOLDER",
        type=flag_values.text,
        help="demo, english, multilingual, typed-decisions, or a checkpoint's folder "
        "(default: demo, a small made-up model)",
    )
    add("--revision", type=flag_values.text, help="commit, branch or tag of a hub checkpoint")
    add(
        "--engine",
        choices=ENGINES,
        default=TORCH,
        help="what runs the model: torch; or onnx (ONNX Runtime on a CPU), mlx or coreml, "
        "used only where its answers are those of torch in full precision (default: torch)",
    )
    add(
        "--artifacts",
        type=flag_values.text,
        metavar="FOLDER",
        help="where what --engine needs of a checkpoint is kept (default: the user's cache folder)",
    )
    add("--compile", action="store_true", help="compile the model at the start (mps and cuda)")
    add(
        "--weights",
        choices=PRECISIONS,
        default=FP32,
        help="fp16 on mps and cuda, bf16 on a CPU that computes in it, int8 with --engine onnx, "
        "where the answers stay those of full precision (default: fp32, as laya has them)",
    )
    add(
        IN_BACKGROUND,
        action="store_true",
        help="serve uncompiled at first, and compile in a second process, which takes over then",
    )
    add(
        "--require-compile",
        action="store_true",
        help="exit 78 when the model cannot be compiled, instead of serving it uncompiled",
    )
    add(
        "--require-parity",
        action="store_true",
        help="exit 78 when --compile or --weights changes an answer, instead of going without; "
        "--engine always does",
    )
    add(
        "--recheck-parity",
        type=flag_values.seconds,
        default=0.0,
        metavar="SECONDS",
        help="run the parity gate's rows again so often, in moments in which nobody asks; "
        "0: never (default: 0)",
    )
    add(
        "--compile-cache",
        type=flag_values.text,
        metavar="FOLDER",
        help="where what the compiler made is kept (default: the user's cache folder)",
    )
    add("--host", type=flag_values.host, help="address to listen on (default: 127.0.0.1)")
    add("--port", type=flag_values.port, help="port to listen on, 0 for a free one (default: 8000)")
    add("--uds", type=flag_values.text, metavar="PATH", help="Unix socket to listen on instead")
    add("--log-level", choices=log.LEVELS, default="info", help="default: info")
    add(
        "--threads",
        type=flag_values.count,
        metavar="N",
        help="torch's threads on a CPU (default: chosen)",
    )
    add(
        "--max-queue",
        type=flag_values.count,
        default=256,
        metavar="ROWS",
        help="questions that may wait or run before 503 (default: 256)",
    )
    add(
        "--request-timeout",
        type=flag_values.some_seconds,
        metavar="SECONDS",
        help="answer 504 to a request that takes longer (default: the client decides)",
    )
    add(
        "--length-buckets",
        type=flag_values.lengths,
        default="auto",
        metavar="auto|off|N,N,...",
        help="lengths in tokens that inputs are padded to; auto: on a GPU only (default: auto)",
    )
    add(
        "--release-memory",
        type=flag_values.byte_count,
        metavar="BYTES",
        help="release cached memory past this footprint, such as 5GiB (default: never)",
    )
    add(
        "--keep-warm",
        type=flag_values.some_seconds,
        metavar="SECONDS",
        help="run a tiny batch after so long an idle time (default: never)",
    )
    add(
        "--forward",
        choices=("auto", "laya"),
        default="auto",
        help="auto: rows run unpadded on a CPU, where that answers as laya's own pass does; "
        "laya: that pass always (default: auto)",
    )
    add(
        "--dialect",
        choices=DIALECTS,
        default=LAYA,
        help="laya: upstream's fields and numbers; jev: the hosted protocol's (default: laya)",
    )
    add(
        "--reject-truncated",
        action="store_true",
        help="answer 422 to what does not fit the model's window, instead of cutting it",
    )
    add(
        "--alias",
        type=flag_values.text,
        metavar="NAME",
        help="another name for the default checkpoint, for a client that can only say NAME",
    )
    add(
        "--preload",
        action="append",
        default=[],
        type=flag_values.text,
        metavar="NAME|FOLDER",
        help="prepare this checkpoint too at the start; may be given several times",
    )
    add(
        "--max-loaded",
        type=flag_values.count,
        default=2,
        metavar="N",
        help="checkpoints loaded at a time, the default included; preloaded ones always fit "
        "(default: 2)",
    )
    add(
        "--routing",
        choices=routing.WAYS,
        default=routing.LANGUAGE,
        help="language: english and multilingual answer each the states that they can read, when "
        "either is the default; off: the default answers all (default: language)",
    )
    add(
        "--takes-tokens",
        type=flag_values.count,
        metavar="N",
        help="answer 421 to a row of more, which another worker takes (default: the window)",
    )
    add(
        "--takes-questions",
        type=flag_values.count,
        metavar="N",
        help="answer 421 to a request of more questions, which another worker takes (default: all)",
    )
    for field, (flag, help_text) in _LIMITS.items():
        default = getattr(_DEFAULT_LIMITS, field)
        text = f"most {help_text} before 413 (default: {default})"
        add(flag, dest=field, type=flag_values.limit, default=default, metavar="N", help=text)
    add(
        "--drain-timeout",
        type=flag_values.seconds,
        default=10.0,
        metavar="SECONDS",
        help="time for requests in flight when asked to stop (default: 10)",
    )
    add("--version", action="version", version=f"%(prog)s {__version__}")
    return parser


def _api_key(environment: Mapping[str, str]) -> bytes | None:
    key = environment.get("LAYA_API_KEY", "")
    if not key:
        return None
    if key != key.strip() or any(ord(letter) < 0x20 or ord(letter) == 0x7F for letter in key):
        # No request could ever carry such a key in a header, so nobody could get in.
        raise bad_configuration(
            "LAYA_API_KEY begins or ends with white space or holds a control character"
        )
    return key.encode("utf-8", "surrogateescape")

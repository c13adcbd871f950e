"""Flags that contradict each other, or this machine: refused before anything is loaded."""

import argparse
import sys
from typing import Final

from omni_jev_worker import processors
from omni_jev_worker.buckets import AUTO, OFF
from omni_jev_worker.checkpoints import HUB_FOLDERS
from omni_jev_worker.engines.names import DEVICES, TORCH, WEIGHTS
from omni_jev_worker.exits import bad_configuration, bad_flags
from omni_jev_worker.tuning import BF16, FP16, FP32

IN_BACKGROUND: Final = "--compile-in-background"
"""The flag that has a second process compile."""


def reject_contradictions(flags: argparse.Namespace) -> None:
    """Refuse flags that cannot all be meant. Raises `Refusal`."""
    if flags.uds is not None:
        for name in ("host", "port"):
            if getattr(flags, name) is not None:
                raise bad_flags(f"--uds and --{name} contradict each other: give one of them")
    if flags.require_device and flags.device in (None, "auto"):
        raise bad_flags("--require-device needs --device to say which device is required")
    if flags.revision is not None and not {flags.model, *flags.preload} & set(HUB_FOLDERS):
        raise bad_flags(f"--revision is for hub checkpoints, and --model {flags.model} is none")
    if flags.model in flags.preload:
        raise bad_flags(f"--preload {flags.model}: this is --model already")
    _reject_for_engine(flags)
    if flags.device == "cpu" and flags.engine == TORCH:
        for option, given in (("--compile", flags.compile), ("--weights fp16", _has(flags, FP16))):
            if given:
                raise bad_flags(f"{option} works on mps and cuda, not with --device cpu")
    if _has(flags, BF16):
        if flags.compile:
            raise bad_flags("--weights bf16 is for the CPU, where --compile brings nothing")
        if flags.device not in (None, "auto", "cpu"):
            raise bad_flags(f"--weights bf16 is for the CPU: use fp16 with --device {flags.device}")
    if flags.compile_in_background:
        if not flags.compile:
            raise bad_flags(f"{IN_BACKGROUND} needs --compile")
        if flags.require_compile:
            raise bad_flags(
                f"{IN_BACKGROUND} and --require-compile contradict each other: at first the model "
                "is uncompiled"
            )
    if flags.require_compile and not flags.compile:
        raise bad_flags("--require-compile needs --compile")
    if not (flags.compile or flags.weights != FP32 or flags.engine != TORCH):
        for option, given in (
            ("--require-parity", flags.require_parity),
            ("--recheck-parity", flags.recheck_parity),
        ):
            if given:
                raise bad_flags(
                    f"{option} needs --compile, --weights or --engine: nothing else is compared"
                )


def _reject_for_engine(flags: argparse.Namespace) -> None:
    """Refuse what an engine does not do. Raises `Refusal`."""
    engine = flags.engine
    if flags.weights not in WEIGHTS[engine]:
        able = [name for name, precisions in WEIGHTS.items() if flags.weights in precisions]
        raise bad_flags(
            f"--weights {flags.weights} needs --engine {' or '.join(able)}; "
            f"{engine} has {' and '.join(WEIGHTS[engine])}"
        )
    if engine == TORCH:
        return
    if flags.device not in (None, "auto", DEVICES[engine]):
        raise bad_flags(f"--engine {engine} runs on {DEVICES[engine]}, not on {flags.device}")
    if flags.compile:
        raise bad_flags(f"--compile is for --engine {TORCH}, not for {engine}")
    if flags.forward != AUTO:
        raise bad_flags(f"--forward {flags.forward} is for --engine {TORCH}, not for {engine}")
    if flags.length_buckets not in (AUTO, OFF):
        raise bad_flags(f"--length-buckets is for --engine {TORCH}: {engine} pads nothing")


def reject_what_cannot_be(flags: argparse.Namespace) -> None:
    """Refuse what this machine can never do. Raises `Refusal`."""
    if _has(flags, BF16) and not processors.has_native_bf16():
        raise bad_configuration(
            "--weights bf16: this processor does not compute in bf16, so it would be slower"
        )
    impossible = {"mps": sys.platform != "darwin", "cuda": sys.platform == "darwin"}
    if flags.require_device and impossible.get(flags.device, False):
        raise bad_configuration(
            f"--require-device: {flags.device} does not exist on this system ({sys.platform})"
        )


def _has(flags: argparse.Namespace, weights: str) -> bool:
    return bool(flags.weights == weights)

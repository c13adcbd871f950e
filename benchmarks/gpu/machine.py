"""What it runs on: the device, versions, memory, load. Nothing here takes memory of a GPU."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks.gpu.servers import ROOT

PACKAGES = (
    "torch",
    "triton",
    "laya",
    "transformers",
    "tokenizers",
    "fastapi",
    "starlette",
    "uvicorn",
)
GB = 1e9


def out_of_reach(device: str) -> str | None:
    """Say why this machine has no such device, if it has none."""
    if device == "cpu":
        return None
    import torch

    if device == "cuda" and not torch.cuda.is_available():
        return f"torch {torch.__version__} finds no CUDA device on this {platform.system()} machine"
    if device == "mps" and not torch.backends.mps.is_available():
        return f"torch {torch.__version__} finds no MPS device on this {platform.system()} machine"
    return None


def describe(device: str, binary: Path | None, folder: Path) -> dict[str, Any]:
    """Give all that a result depends on; without a binary where none takes part."""
    encoder = json.loads((folder / "encoder" / "config.json").read_text())
    sizes = ("num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads")
    return {
        "device": device,
        "device_name": _device_name(device),
        "system": platform.platform(),
        "processor": processor(),
        "processors": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "binary": _output([str(binary.resolve()), "--version"]) if binary else "",
        "commit": _output(["git", "-C", str(ROOT), "rev-parse", "HEAD"]),
        "checkpoint": {
            "folder": str(folder),
            "sha256": _sha256(folder / "model.safetensors"),
            "bytes": (folder / "model.safetensors").stat().st_size,
            **{name: encoder.get(name) for name in (*sizes, "vocab_size")},
        },
        "load_average": os.getloadavg(),
        "command": sys.argv,
    }


def gpu_bytes() -> tuple[float, str] | None:
    """Give what nvidia-smi says is used, and of what: of processes, or else of the whole GPU."""
    asked = ["--query-compute-apps=used_memory", "--query-gpu=memory.used"]
    for query, what in zip(asked, ("its processes", "the GPU"), strict=True):
        shown = _output(["nvidia-smi", query, "--format=csv,noheader,nounits"])
        used = [int(line) for line in shown.split() if line.isdigit()]
        if used:
            return sum(used) * float(1 << 20), what
    return None


def _device_name(device: str) -> str:
    if device == "cuda":
        query = "--query-gpu=name,driver_version,memory.used,memory.total,clocks.sm"
        return _output(["nvidia-smi", query, "--format=csv,noheader"])
    return processor()


def processor() -> str:
    """Name the processor, which on an Apple machine is the GPU's name too."""
    if platform.system() == "Darwin":
        return _output(["sysctl", "-n", "machdep.cpu.brand_string"])
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _output(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

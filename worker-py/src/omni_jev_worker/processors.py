"""Chooses how many threads torch gets on a CPU, before torch is imported.

An inherited default (every logical core) is the wrong choice: a second thread on the same physical
core adds nothing to a matrix product, and threads that spin while they wait take the cores from the
frontend and from each other.
"""

import math
import os
import subprocess
import sys
from pathlib import Path


def choose_threads(asked: int | None) -> int:
    """Give the number of torch threads: ``asked``, else all physical cores but one, or both of two.

    The core that is left belongs to the frontend, to HTTP and to tokenizing. Of two it would be
    half of all, and they need much less (measured: benchmarks/worker/README.md, "Threads").
    """
    if asked is not None:
        return asked
    cores = physical_cores()
    return max(min(2, cores), cores - 1)


def prepare_environment(threads: int) -> None:
    """Set what the native libraries read once, when torch is first loaded."""
    os.environ["OMP_NUM_THREADS"] = str(threads)
    # Threads that spin while they wait steal the core from whoever has work.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # The tokenizer runs on one thread of ours; a pool of its own would fight torch's.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")


def has_native_bf16() -> bool:
    """Say whether the processor multiplies matrices of bf16 itself."""
    if sys.platform == "darwin":
        return _asked_of_macos("hw.optional.arm.FEAT_BF16") == 1
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return False
    flags = {
        flag
        for line in text.splitlines()
        if line.startswith(("flags", "Features"))
        for flag in line.split()
    }
    return bool(flags & {"avx512_bf16", "amx_bf16", "bf16"})


def physical_cores() -> int:
    """Count the physical cores that this process may use, at least one."""
    usable = _usable_logical_cores()
    counted = _cores_of_macos() if sys.platform == "darwin" else _cores_of_linux()
    return max(1, min(usable, counted if counted is not None else usable))


def _usable_logical_cores() -> int:
    if sys.platform == "linux":
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    quota = _container_quota()
    return max(1, min(cores, quota if quota is not None else cores))


def _container_quota(path: Path = Path("/sys/fs/cgroup/cpu.max")) -> int | None:
    """Read a container's processor quota (cgroup v2, ``cpu.max``: quota and period in us)."""
    try:
        quota, period = path.read_text().split()[:2]
        return max(1, math.floor(int(quota) / int(period)))
    except (OSError, ValueError, ZeroDivisionError):
        return None


def _cores_of_linux(root: Path = Path("/sys/devices/system/cpu")) -> int | None:
    """Count the distinct cores among the logical ones, by what shares a core with what."""
    try:
        usable = os.sched_getaffinity(0) if sys.platform == "linux" else set[int]()
        siblings = {
            (root / f"cpu{cpu}/topology/thread_siblings_list").read_text().strip() for cpu in usable
        }
    except OSError:
        return None
    return len(siblings) or None


def _cores_of_macos() -> int | None:
    return _asked_of_macos("hw.physicalcpu")


def _asked_of_macos(name: str) -> int | None:
    try:
        command = ["/usr/sbin/sysctl", "-n", name]
        answer = subprocess.run(command, capture_output=True, check=True, timeout=5)
        return int(answer.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None

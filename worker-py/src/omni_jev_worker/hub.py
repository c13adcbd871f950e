"""Gets a published checkpoint from the hub's cache, or from the hub.

The cache comes first: a start takes no network when the files are there, and does not change its
model because somebody pushed to ``main``. ``--revision`` asks for a certain commit, branch or tag.
"""

import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from omni_jev_worker import checkpoints, log
from omni_jev_worker.checkpoints import FILES, HUB_FOLDERS, REPOSITORY, Checkpoint
from omni_jev_worker.exits import BAD_CONFIGURATION, UNREACHABLE, Refusal
from omni_jev_worker.faults import one_line

_PROGRESS_SECONDS: Final = 5.0
_TRUE: Final = ("1", "ON", "YES", "TRUE")  # as the hub's client reads a switch


def get(name: str, revision: str | None, environment: Mapping[str, str]) -> Checkpoint:
    """Give a published checkpoint, downloading it where the cache lacks it.

    Raises `Refusal` that names repository, revision and reason.
    """
    wanted = revision or "main"
    cache = cache_folder(environment) / f"models--{REPOSITORY.replace('/', '--')}"
    snapshot = _cached_snapshot(cache, wanted, HUB_FOLDERS[name])
    if snapshot is None:
        snapshot = _download(name, wanted, cache)
    subfolder = HUB_FOLDERS[name]
    folder = snapshot / subfolder if subfolder else snapshot
    released = checkpoints.check_files(folder)
    return Checkpoint(
        name=name,
        origin=checkpoints.origin_of(name),
        revision=snapshot.name,
        folder=folder,
        released=released,
    )


def cache_folder(environment: Mapping[str, str]) -> Path:
    """Give the hub's cache folder by the hub's own rules, without importing its client."""
    if given := environment.get("HF_HUB_CACHE") or environment.get("HUGGINGFACE_HUB_CACHE"):
        return Path(given).expanduser()
    if home := environment.get("HF_HOME"):
        return Path(home).expanduser() / "hub"
    base = environment.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "huggingface" / "hub"


def _cached_snapshot(cache: Path, revision: str, subfolder: str | None) -> Path | None:
    """Give the cached snapshot of a revision if it has every file of the checkpoint."""
    commit = revision
    reference = cache / "refs" / revision
    if reference.is_file():
        commit = reference.read_text().strip()
    snapshot = cache / "snapshots" / commit
    folder = snapshot / subfolder if subfolder else snapshot
    # A download that was cut short leaves a snapshot without some of its files.
    return snapshot if all((folder / name).is_file() for name in FILES) else None


def _download(name: str, revision: str, cache: Path) -> Path:
    subfolder = HUB_FOLDERS[name]
    prefix = f"{subfolder}/" if subfolder else ""
    what = f"{REPOSITORY} at revision {revision}"
    if _is_offline():
        # What its client would find out as well, after its import.
        raise _unreachable(name, what, None)
    log.info(f"getting {what} ({name}) from the hub", phase="download")
    from huggingface_hub import snapshot_download

    patterns = ("rl_agent_config.json", "model.safetensors", "tokenizer/*", "encoder/*")
    try:
        with _progress(cache / "blobs"):
            path = snapshot_download(
                REPOSITORY,
                revision=revision,
                cache_dir=cache.parent,
                token=os.environ.get("HF_TOKEN") or None,
                allow_patterns=[prefix + pattern for pattern in patterns],
            )
    except Exception as fault:
        # Whatever the client raises (no network, no such revision, a full disk), the user needs
        # the same line: what could not be had, and why.
        raise _unreachable(name, what, fault) from None
    folder = Path(path) / subfolder if subfolder else Path(path)
    if not all((folder / file).is_file() for file in FILES):
        raise _unreachable(name, what, None)
    return Path(path)


def _is_offline() -> bool:
    return os.environ.get("HF_HUB_OFFLINE", "").upper() in _TRUE


def _unreachable(name: str, what: str, fault: Exception | None) -> Refusal:
    if _is_offline():
        reason = "HF_HUB_OFFLINE is set"
    elif fault is not None:
        reason = f"{type(fault).__name__}: {one_line(str(fault))}"
    else:
        reason = "the download is incomplete"
    return Refusal(
        BAD_CONFIGURATION,
        f"--model {name}: {what} is not in the cache and cannot be downloaded ({reason})",
        kind=UNREACHABLE,
    )


@contextmanager
def _progress(blobs: Path) -> Iterator[None]:
    """Log how many bytes have come while a download runs, and only while bytes come."""
    done = threading.Event()
    thread = threading.Thread(target=_report, args=(blobs, done), name="download", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _report(blobs: Path, done: threading.Event) -> None:
    start, seen = time.monotonic(), _bytes_in(blobs)
    while not done.wait(_PROGRESS_SECONDS):
        now = _bytes_in(blobs)
        # Silence when nothing comes: a line here is taken as progress by whoever waits.
        if now > seen:
            elapsed = round(time.monotonic() - start)
            megabytes = round(now / 1e6)
            log.info(
                f"downloading: {megabytes} MB in the cache after {elapsed} s", phase="download"
            )
            seen = now


def _bytes_in(folder: Path) -> int:
    total = 0
    try:
        for entry in os.scandir(folder):
            total += entry.stat(follow_symlinks=False).st_size
    except OSError:
        # The folder appears with the first byte, and files are renamed while we look.
        return total
    return total

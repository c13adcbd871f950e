"""Gets an artifact's archive from elsewhere, at a revision that cannot change under its name.

What comes is trusted no more than any other archive: see `archive`.
"""

import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, Final

import httpx2

from omni_jev_worker import log
from omni_jev_worker.artifacts.archive import MOST_BYTES
from omni_jev_worker.artifacts.key import file_hash

_SECONDS: Final = 30.0
_MOST_HOPS: Final = 5
_COMMIT: Final = re.compile("[0-9a-f]{40}")
_SHA256: Final = re.compile("[0-9a-f]{64}")


class CannotFetch(Exception):
    """An archive cannot be had; the text says which, and why."""


def from_url(
    url: str, sha256: str, target: Path, client: Callable[..., httpx2.Client] = httpx2.Client
) -> None:
    """Download an archive whose hash is known. Raises `CannotFetch` and `OSError`."""
    _check_hash(sha256)
    shown = _shown(url)
    try:
        with (
            client(timeout=_SECONDS, follow_redirects=False) as session,
            target.open("xb") as file,
        ):
            found = _download(session, url, file)
    except httpx2.HTTPError as fault:
        raise CannotFetch(f"{shown} cannot be had ({type(fault).__name__})") from None
    if found != sha256:
        raise CannotFetch(f"{shown} is not what was asked for: its sha256 is {found}")


def from_hub(
    repository: str, file: str, revision: str, sha256: str | None, download: Any = None
) -> Path:
    """Download an archive of a hub repository at a commit; give where the hub's cache has it.

    Raises `CannotFetch`.
    """
    if not _COMMIT.fullmatch(revision):
        raise CannotFetch("--revision must be a commit of 40 hexadecimal digits: a name can move")
    if sha256 is not None:
        _check_hash(sha256)
    if download is None:
        from huggingface_hub import hf_hub_download as download
    what = f"{file} of {repository} at {revision}"
    log.info(f"getting {what} from the hub", phase="download")
    try:
        found = Path(download(repository, file, revision=revision))
    except Exception as fault:
        # Whatever its client raises: no network, no such file, no room.
        raise CannotFetch(f"{what} cannot be had ({type(fault).__name__})") from None
    if sha256 is not None and file_hash(found) != sha256:
        raise CannotFetch(f"{what} is not what was asked for: its sha256 is {file_hash(found)}")
    return found


def _download(session: httpx2.Client, url: str, file: BinaryIO) -> str:
    """Write what a URL gives to a file, and give its hash."""
    for _ in range(_MOST_HOPS):
        if not url.startswith("https://"):
            raise CannotFetch(f"{_shown(url)} is no https:// address")
        log.info(f"getting {_shown(url)}", phase="download")
        with session.stream("GET", url) as response:
            if response.is_redirect:
                url = str(response.url.join(response.headers.get("location", "")))
                continue
            if response.status_code != 200:
                raise CannotFetch(f"{_shown(url)} answers {response.status_code}")
            return _write(response, file, url)
    raise CannotFetch(f"{_shown(url)} leads on more than {_MOST_HOPS} times")


def _write(response: httpx2.Response, file: BinaryIO, url: str) -> str:
    key = hashlib.sha256()
    size = 0
    # As it comes: decoded, a little could become much.
    for part in response.iter_raw():
        size += len(part)
        if size > MOST_BYTES:
            raise CannotFetch(f"{_shown(url)} is larger than {MOST_BYTES} bytes")
        key.update(part)
        file.write(part)
    return key.hexdigest()


def _check_hash(sha256: str) -> None:
    if not _SHA256.fullmatch(sha256):
        raise CannotFetch("--sha256 must be 64 hexadecimal digits in lower case")


def _shown(url: str) -> str:
    """Give an address without what may be secret in it: user, query and fragment."""
    return re.sub(r"//[^/@]*@", "//", url.partition("?")[0].partition("#")[0])[:200]

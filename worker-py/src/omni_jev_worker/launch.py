"""How a checkpoint beside the default is served: by this worker's command, as it was started."""

import sys
from collections.abc import Mapping
from typing import Final

from omni_jev_worker import checkpoints
from omni_jev_worker.checkpoints import DEMO, HUB_FOLDERS, Checkpoint
from omni_jev_worker.exits import Refusal, bad_configuration
from omni_jev_worker.flag_values import MOST_LIMIT
from omni_jev_worker.routing import OFF
from omni_jev_worker.settings import LIMIT_FLAGS, Settings


class Launch:
    """Knows the checkpoints that ``--preload`` names, and the command for any."""

    def __init__(self, asked: Settings, default: Checkpoint, threads: int) -> None:
        """Check what is to be preloaded. Raises `Refusal`."""
        self._asked = asked
        self._threads = threads
        self._folders: dict[str, str] = {}
        self.preloaded: Mapping[str, str] = self._find(default)
        """The origin of each checkpoint of ``--preload`` by its name, in their order."""

    def _find(self, default: Checkpoint) -> dict[str, str]:
        origins: dict[str, str] = {}
        for given in self._asked.preload:
            if given == DEMO:
                name, origin = DEMO, DEMO
            elif given in HUB_FOLDERS:
                name, origin = given, checkpoints.origin_of(given)
            else:
                name = origin = self._folder(given)
            if name == default.name or name in origins:
                raise bad_configuration(f"--preload: there are two checkpoints by the name {name}")
            origins[name] = origin
        return origins

    def _folder(self, given: str) -> str:
        try:
            found = checkpoints.from_folder(given)
        except Refusal as refusal:
            # Its words are about the flag that usually names a folder.
            said = str(refusal).replace("--model", "--preload", 1)
            raise Refusal(refusal.code, said) from None
        self._folders[found.name] = str(found.folder)
        return found.name

    def command(self, name: str) -> list[str]:
        """Give the command that serves a checkpoint by its name; its socket is yet to be added.

        The requests that it gets have passed this worker's limits, but a body may be a little
        longer in this worker's own words.
        """
        asked = self._asked
        flags = {
            "--model": self._folders.get(name, name),
            "--revision": asked.revision if name in HUB_FOLDERS else None,
            "--device": asked.device if asked.device != "auto" else None,
            "--log-level": asked.log_level,
            "--threads": self._threads,
            "--max-queue": asked.max_queue,
            "--length-buckets": _lengths(asked.length_buckets),
            "--release-memory": asked.release_memory,
            "--keep-warm": asked.keep_warm,
            "--recheck-parity": asked.recheck_parity,
            "--engine": asked.tuning.engine,
            "--artifacts": asked.artifacts,
            "--weights": asked.tuning.weights,
            "--compile-cache": asked.compile_cache,
            "--forward": asked.forward,
            "--dialect": asked.dialect,
            "--drain-timeout": asked.drain_timeout,
            "--max-loaded": 1,
            "--routing": OFF,
            **{flag: getattr(asked.limits, field) for field, flag in LIMIT_FLAGS.items()},
            "--max-body-bytes": MOST_LIMIT,
        }
        switches = {
            "--require-device": asked.require_device,
            "--compile": asked.tuning.compiled,
            "--require-compile": asked.require_compile,
            "--require-parity": asked.require_parity,
            "--reject-truncated": asked.reject_truncated,
        }
        words = [f"{flag}={value}" for flag, value in flags.items() if value is not None]
        words += [flag for flag, on in switches.items() if on]
        return [*_PYTHON, *words]


_PYTHON: Final = (sys.executable, "-m", "omni_jev_worker")


def _lengths(buckets: str | tuple[int, ...]) -> str:
    return buckets if isinstance(buckets, str) else ",".join(map(str, buckets))

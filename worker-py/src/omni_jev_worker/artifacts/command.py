"""``python -m omni_jev_worker artifacts …``: what a person does with artifacts.

`build` and `warm` take the worker's own flags, since they do what a start does; the others need no
checkpoint, and no torch.
"""

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from omni_jev_worker import log
from omni_jev_worker.artifacts import WORD, flags, manifest
from omni_jev_worker.artifacts.archive import Hostile, bring_in, export
from omni_jev_worker.artifacts.fetch import CannotFetch, from_hub, from_url
from omni_jev_worker.artifacts.manifest import Corrupt
from omni_jev_worker.artifacts.store import STAGING, Artifact, Store, check
from omni_jev_worker.engines.forward import Unavailable
from omni_jev_worker.exits import STOPPED, bad_configuration, bad_flags
from omni_jev_worker.faults import is_the_machines, one_line
from omni_jev_worker.terminal import tell

_DAY: Final = 86_400.0


def run(words: Sequence[str], environment: Mapping[str, str]) -> int:
    """Do one of those that need no checkpoint; give the exit code. Raises `Refusal`."""
    asked = flags.parse(words, environment)
    log.set_up("info")
    store = Store(Path(asked.artifacts))
    actions: dict[str, Callable[[Store, Any], None]] = {
        "list": _list,
        "verify": _verify,
        "prune": _prune,
        "export": _export,
        "import": _import,
        "fetch": _fetch,
    }
    try:
        actions[asked.action](store, asked)
    except (Hostile, Corrupt) as fault:
        raise bad_configuration(f"{WORD} {asked.action}: the archive {fault}") from None
    except (CannotFetch, Unavailable) as fault:
        raise bad_configuration(f"{WORD} {asked.action}: {fault}") from None
    except OSError as fault:
        if is_the_machines(fault):
            raise
        what = f"{fault.filename}: {fault.strerror}" if fault.filename else str(fault)
        raise bad_configuration(f"{WORD} {asked.action}: {one_line(what)}") from None
    return STOPPED


def describe(store: Store, folder: Path) -> str:
    """Say in a line what an artifact is, unchecked."""
    name = str(folder.relative_to(store.root))
    size = sum(each.stat().st_size for each in folder.iterdir()) / 1e6
    try:
        found = manifest.read(folder)
    except Corrupt as fault:
        return f"{name}  {size:.1f} MB  {fault}"
    proof = found.proof
    gate = "not proved" if proof is None else "proved" if proof.get("passed") else "refused"
    return f"{name}  {found.checkpoint}  {size:.1f} MB  {gate}"


def _list(store: Store, _: Any) -> None:
    aside = [f"{each.relative_to(store.root)}  left over" for each in store.leftovers()]
    tell([*(describe(store, each) for each in store.all()), *aside])


def _verify(store: Store, asked: Any) -> None:
    corrupt = []
    for folder in _chosen(store, asked.names):
        name = str(folder.relative_to(store.root))
        with store.locked_folder(folder):
            try:
                check(folder)
                tell([f"{name}  whole"])
            except (Corrupt, OSError) as fault:
                store.set_aside(folder, str(fault))
                tell([f"{name}  {fault}"])
                corrupt.append(name)
    if corrupt:
        raise bad_configuration(f"{WORD} verify: {len(corrupt)} set aside ({', '.join(corrupt)})")


def _prune(store: Store, asked: Any) -> None:
    """Remove what is left over, and what nobody has used for so many days."""
    now = time.time()
    for folder in store.leftovers():
        # Whoever stages one may be at it still.
        if not folder.name.startswith(STAGING) or now - folder.stat().st_mtime > _DAY:
            _remove(store, folder)
    if asked.unused_days is None:
        return
    for folder in store.all():
        with store.locked_folder(folder):
            if now - folder.stat().st_mtime > asked.unused_days * _DAY:
                _remove(store, folder)


def _remove(store: Store, folder: Path) -> None:
    shutil.rmtree(folder)
    tell([f"removed {folder.relative_to(store.root)}"])


def _export(store: Store, asked: Any) -> None:
    (folder,) = _chosen(store, [asked.name])
    with store.locked_folder(folder):
        export(Artifact(folder, check(folder)), Path(asked.file))
    tell([f"wrote {asked.file}"])


def _import(store: Store, asked: Any) -> None:
    _tell_published(store, bring_in(store, Path(asked.file)))


def _fetch(store: Store, asked: Any) -> None:
    if "://" in asked.source:
        if asked.sha256 is None or asked.revision is not None or asked.file is not None:
            raise bad_flags(f"{WORD} fetch: an address needs --sha256, and nothing else")
        with store.staged() as folder:
            from_url(asked.source, asked.sha256, folder / "archive")
            _tell_published(store, bring_in(store, folder / "archive"))
        return
    if asked.revision is None or asked.file is None:
        raise bad_flags(f"{WORD} fetch: a repository needs --revision and --file")
    found = from_hub(asked.source, asked.file, asked.revision, asked.sha256)
    _tell_published(store, bring_in(store, found))


def _tell_published(store: Store, artifact: Artifact) -> None:
    tell([f"published {artifact.folder.relative_to(store.root)}, to be proved at its first use"])


def _chosen(store: Store, names: Sequence[str]) -> list[Path]:
    if not names:
        return store.all()
    try:
        return [store.named(name) for name in names]
    except KeyError as fault:
        raise bad_configuration(f"{WORD}: there is no {fault.args[0][:100]} (see list)") from None

"""From flags to a serving process, and back to an exit code.

Everything that can be known without torch is checked before torch is imported, which takes
seconds; everything that serves is loaded and warm before a socket listens.
"""

import os
import signal
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final

from omni_jev_worker import (
    __version__,
    caches,
    checkpoints,
    faults,
    hub,
    log,
    processors,
    settings,
    sockets,
    versions,
)
from omni_jev_worker.artifacts import WITH_A_MODEL, WORD
from omni_jev_worker.checkpoints import DEMO, DEMO_NOTE, HUB_FOLDERS, Checkpoint
from omni_jev_worker.engines.names import TORCH
from omni_jev_worker.exits import BAD_CONFIGURATION, FAILED, STOPPED, Refusal, bad_flags
from omni_jev_worker.launch import Launch
from omni_jev_worker.settings import Settings
from omni_jev_worker.terminal import tell

if TYPE_CHECKING:
    # For the types alone: what these import would make `--help` slow.
    from omni_jev_worker.engine import Engine
    from omni_jev_worker.known_answers import KnownAnswers
    from omni_jev_worker.queue import RowQueue
    from omni_jev_worker.tuner import Tunes

PARITY: Final = "parity"
"""The word before the flags that compares, prints and ends, instead of serving."""

_SERVE: Final = "serve"

_LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")


def main(argv: Sequence[str]) -> int:
    """Run the worker until it is asked to stop; give its exit code."""
    _stop_at_once_when_asked()
    task, words = _task(argv)
    try:
        if task == WORD:
            from omni_jev_worker.artifacts import command

            return command.run(words, os.environ)
        asked = settings.parse(words, os.environ)
        log.set_up(asked.log_level)
        if task == PARITY and asked.tuning.is_plain:
            raise bad_flags(
                f"{PARITY} needs --compile, --weights or --engine: nothing else is compared"
            )
        if task in WITH_A_MODEL and asked.tuning.engine == TORCH:
            raise bad_flags(f"{WORD} {task} needs --engine: {TORCH} needs no artifact")
        return _run(asked, argv, task)
    except SystemExit as end:
        # --help and --version have printed what was asked for.
        return int(end.code or 0)
    except Refusal as refusal:
        # Logging may not be set up yet: a wrong flag is what a person at a terminal sees.
        log.set_up("error")
        log.error(str(refusal), **({"kind": refusal.kind} if refusal.kind else {}))
        return refusal.code


def _task(argv: Sequence[str]) -> tuple[str, Sequence[str]]:
    """Tell what is to be done from the words before the flags; serving has none."""
    if argv[:1] == [PARITY]:
        return PARITY, argv[1:]
    if argv[:1] != [WORD]:
        return _SERVE, argv
    if argv[1:2] and argv[1] in WITH_A_MODEL:
        return argv[1], argv[2:]
    return WORD, argv[1:]


def _run(asked: Settings, argv: Sequence[str], task: str) -> int:
    settings.warn_of_unread_variables(os.environ)
    _check_engine(asked)
    checkpoint = _find(asked)
    if checkpoint.name == DEMO:
        log.info(DEMO_NOTE)
    inherited = sockets.inherited(os.environ.pop(sockets.LISTENER, None))
    if inherited is None and task == _SERVE:
        sockets.check_address(asked.host, asked.port, asked.uds)
    _warn_of_open_address(asked)
    installed = versions.check()
    threads = processors.choose_threads(asked.threads)
    processors.prepare_environment(threads)
    if asked.tuning.compiled:
        caches.use_for_compiler(asked.compile_cache)
    log.info(
        f"torch gets {threads} thread(s) on the CPU",
        phase="import",
        threads=threads,
        physical_cores=processors.physical_cores(),
        chosen_by="--threads" if asked.threads is not None else "physical cores",
    )
    launch = Launch(asked, checkpoint, threads)
    compare = task in (PARITY, "build")
    engine, queue = _engine(asked, checkpoint, threads, installed, compare=compare)
    fault = engine.start().exception()
    if fault is not None:
        refusal = faults.refusal_of(fault)
        if refusal is not None:
            raise refusal
        log.error(f"the worker could not start: {log.where(fault)}: {faults.cause_of(fault)}")
        return FAILED
    if task != _SERVE:
        return _tell(task, engine)
    listener = inherited or sockets.bind(asked.host, asked.port, asked.uds)
    try:
        return _serve(asked, argv, checkpoint, launch, engine, queue, listener)
    finally:
        # What was inherited is its owner's.
        if asked.uds is not None and inherited is None:
            sockets.remove(asked.uds)


def _engine(
    asked: Settings,
    checkpoint: Checkpoint,
    threads: int,
    installed: Mapping[str, str],
    *,
    compare: bool,
) -> "tuple[Engine, RowQueue]":
    from omni_jev_worker.engine import Engine
    from omni_jev_worker.known_answers import KnownAnswers
    from omni_jev_worker.queue import RowQueue

    queue = RowQueue(asked.max_queue)
    known = KnownAnswers(Path(asked.compile_cache) / "parity", checkpoint.folder, installed)
    known.begin()
    engine = Engine(
        checkpoint,
        queue,
        device=asked.device,
        require_device=asked.require_device,
        threads=threads,
        length_buckets=asked.length_buckets,
        release_memory=asked.release_memory,
        keep_warm=asked.keep_warm,
        recheck=asked.recheck_parity,
        forward=asked.forward,
        tuner=_tuner(asked, checkpoint, threads, known, compare=compare),
        known=known,
    )
    return engine, queue


def _tuner(
    asked: Settings, checkpoint: Checkpoint, threads: int, known: "KnownAnswers", *, compare: bool
) -> "Tunes":
    """Give what makes the model run as asked."""
    from omni_jev_worker.tuner import Tuner
    from omni_jev_worker.tuning import Tuning

    if asked.tuning.engine != TORCH:
        from omni_jev_worker.artifacts.store import Store
        from omni_jev_worker.engines.adoption import Adoption

        store = Store(Path(asked.artifacts))
        return Adoption(
            asked.tuning,
            checkpoint,
            store,
            threads,
            known,
            compares=compare,
            require_parity=asked.require_parity,
            rechecks=asked.recheck_parity is not None,
        )
    return Tuner(
        Tuning(asked.tuning.weights) if asked.compile_in_background else asked.tuning,
        require_compile=asked.require_compile,
        require_parity=asked.require_parity,
        known=known,
        runs_anywhere=os.environ.get("OMNI_JEV_TUNE_ANYWHERE") == "1",
    )


def _tell(task: str, engine: "Engine") -> int:
    """Print what the parity gate found; the exit code says whether all that was asked for runs."""
    from omni_jev_worker import parity_table

    state = engine.snapshot.tuning
    lines = parity_table.lines(state)
    if task != PARITY:
        lines = [*lines[-2:], f"warmed up in {engine.snapshot.model.warmup_ms} ms"]
    tell(lines)
    return BAD_CONFIGURATION if state.is_less else STOPPED


def _serve(
    asked: Settings,
    argv: Sequence[str],
    checkpoint: Checkpoint,
    launch: Launch,
    engine: "Engine",
    queue: "RowQueue",
    listener: socket.socket,
) -> int:
    from omni_jev_worker.app import App
    from omni_jev_worker.envelope import Envelope

    # Torch is here by now, and laya with it.
    from omni_jev_worker.model import route
    from omni_jev_worker.pool import CannotPreload, CheckpointPool
    from omni_jev_worker.rehearsal import rehearse
    from omni_jev_worker.routing import Routing
    from omni_jev_worker.server import Server
    from omni_jev_worker.successor import Successor

    pool = CheckpointPool(launch.command, room=asked.max_loaded - 1, most_waiting=asked.max_queue)
    routing = Routing(
        checkpoint,
        alias=asked.alias,
        way=asked.routing,
        preloaded=launch.preloaded,
        by_language=route,
    )
    app = App(
        engine,
        queue,
        routing,
        pool,
        instance=asked.instance,
        api_key=asked.api_key,
        control_token=asked.control_token,
        request_timeout=asked.request_timeout,
        limits=asked.limits,
        dialect=asked.dialect,
        reject_truncated=asked.reject_truncated,
        lane=asked.lane,
    )
    address = sockets.address_of(listener)

    async def prepare() -> None:
        await pool.preload(list(launch.preloaded))
        pool.serving = True
        await rehearse(envelope, engine.snapshot.model.name, asked.api_key)
        queue.count_from_now()

    def ready() -> None:
        state = engine.snapshot.model
        log.info(
            f"ready on {address}",
            phase="ready",
            address=address,
            port=listener.getsockname()[1] if asked.uds is None else None,
            device=state.device,
            checkpoint=state.checkpoint,
            revision=state.revision,
            warmup_ms=state.warmup_ms,
            version=__version__,
        )
        if successor is not None:
            successor.begin()

    def stopping() -> None:
        app.draining = True
        log.info("asked to stop: finishing what is in flight", phase="draining")
        if successor is not None:
            successor.ask_to_stop()

    async def take_over() -> None:
        envelope.closing = True
        server.take_no_more()
        await server.until_left()
        await pool.close()
        engine.retire()

    async def end() -> None:
        await pool.close()
        if successor is not None:
            await successor.close()

    envelope = Envelope(app.asgi)
    server = Server(
        envelope,
        drain_timeout=asked.drain_timeout,
        before=prepare,
        on_listening=ready,
        on_stop=stopping,
        after=end,
    )
    successor = (
        Successor(
            argv,
            listener,
            instance=asked.instance,
            take_over=take_over,
            until_answered=server.until_answered,
            drain_timeout=asked.drain_timeout,
        )
        if asked.compile_in_background
        else None
    )
    app.background = successor
    try:
        server.run_on(listener)
    except CannotPreload as fault:
        log.error(f"the worker could not start: {fault}")
        return FAILED
    # The server's own handlers ended with its loop, and the default would spoil the exit code.
    _stop_at_once_when_asked()
    if not engine.stop():
        log.warning("stopping with a forward pass still running", phase="draining")
    return STOPPED


def _check_engine(asked: Settings) -> None:
    """Check that what is to run the model can run here, before anything is loaded."""
    if asked.tuning.engine == TORCH:
        return
    # With it comes numpy, which wrong flags need not wait for.
    from omni_jev_worker.engines import known

    known.check(asked.tuning)


def _find(asked: Settings) -> Checkpoint:
    try:
        if asked.model == DEMO:
            return checkpoints.find_demo(os.environ)
        if asked.model in HUB_FOLDERS:
            return hub.get(asked.model, asked.revision, os.environ)
        return checkpoints.from_folder(asked.model)
    except Refusal:
        raise
    except Exception as fault:
        if faults.is_the_machines(fault):
            raise
        raise faults.unusable(faults.one_line(asked.model, 200), fault) from fault


def _warn_of_open_address(asked: Settings) -> None:
    if asked.uds is None and asked.api_key is None and asked.host not in _LOOPBACK:
        log.warning(f"listening on {asked.host} without a key: set LAYA_API_KEY to require one")


def _stop_at_once_when_asked() -> None:
    """End at once on a signal: nothing is in flight, and importing torch cannot be interrupted."""

    def stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        os._exit(STOPPED)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)

"""The address to listen on: checked early, bound late."""

import contextlib
import os
import socket
import stat
from typing import Final

from omni_jev_worker.exits import bad_configuration

LISTENER: Final = "OMNI_JEV_LISTENER"
"""The variable with the number of a listening socket that another process bound for this one."""


def check_address(host: str, port: int, uds: str | None) -> None:
    """Find out now whether the address can be had, before minutes of loading.

    Nothing listens meanwhile. Raises `Refusal` that names the address.
    """
    bind(host, port, uds).close()
    if uds is not None:
        remove(uds)


def inherited(number: str | None) -> socket.socket | None:
    """Give the socket that another process has bound for this one; none where there is none."""
    if number is None or not number.isdigit():
        return None
    try:
        return socket.socket(fileno=int(number))
    except OSError as fault:
        raise bad_configuration(f"the inherited socket {number}: {fault.strerror}") from None


def bind(host: str, port: int, uds: str | None) -> socket.socket:
    """Bind the address without listening on it. Raises `Refusal` that names it."""
    if uds is not None:
        return _bind_unix(uds)
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as fault:
        raise bad_configuration(f"--host {host}: {fault.strerror or fault}") from None
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as fault:
        listener.close()
        raise bad_configuration(f"cannot listen on {host} port {port}: {fault.strerror}") from None
    return listener


def _bind_unix(path: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _remove_abandoned(path)
        listener.bind(path)
        # Whoever may not read our files may not ask us either.
        os.chmod(path, 0o600)
    except OSError as fault:
        listener.close()
        # An overlong path (104 or 108 bytes) comes without strerror.
        raise bad_configuration(f"--uds {path}: {fault.strerror or fault}") from None
    return listener


def _remove_abandoned(path: str) -> None:
    """Remove the socket that a killed process left; leave one that answers, and other files."""
    try:
        if not stat.S_ISSOCK(os.stat(path).st_mode):
            return
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)


def remove(path: str) -> None:
    """Remove a Unix socket's file, if it is still there."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def address_of(listener: socket.socket) -> str:
    """Name a bound socket as a URL, with the port that the system chose."""
    name = listener.getsockname()
    if listener.family == socket.AF_UNIX:
        return f"unix:{name}"
    host = f"[{name[0]}]" if listener.family == socket.AF_INET6 else name[0]
    return f"http://{host}:{name[1]}"

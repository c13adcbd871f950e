"""omni-jev under a service manager, as the first process of a container, and without a folder."""

import os
import plistlib
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.harness.client import ask
from tests.harness.clients import Clients
from tests.harness.fakes import FakeWorker
from tests.harness.logged_process import kill
from tests.harness.omni_jev import ROOT, binary
from tests.harness.process_table import Process

SERVICE = ROOT / "recipe" / "service"

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="Linux has it, nobody else")


class ServiceManager:
    """A socket that plays systemd's (`sd_notify(3)`)."""

    def __init__(self, address: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(address.replace("@", "\0", 1))
        self.socket.settimeout(20)
        self.heard: list[dict[str, str]] = []

    def wait_for(self, name: str) -> dict[str, str]:
        """The first message with this assignment."""
        while True:
            text = self.socket.recv(65536).decode()
            message = dict(line.split("=", 1) for line in text.splitlines())
            self.heard.append(message)
            if name in message:
                return message

    def wait_until(self, holds: Callable[[str], bool]) -> None:
        """Wait for a status of which this holds."""
        while not holds(self.wait_for("STATUS")["STATUS"]):
            pass


@contextmanager
def service_manager(address: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServiceManager]:
    manager = ServiceManager(address)
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    with manager.socket:
        yield manager


@pytest.mark.parametrize(
    "abstract", [False, pytest.param(True, marks=linux_only)], ids=["path", "abstract"]
)
def test_a_service_manager_is_told_when_it_is_ready_and_when_it_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, abstract: bool
) -> None:
    address = f"@omni-jev-test-{tmp_path.name}" if abstract else str(tmp_path / "notify")
    with (
        service_manager(address, monkeypatch) as manager,
        FakeWorker(tmp_path, "none") as running,
    ):
        ready = manager.wait_for("READY")
        assert ready == {"READY": "1", "STATUS": "the worker is ready"}
        # Said when the first answer can be had, not before, and time was asked for until then.
        assert running.decide({"state": "x"}).status == 200
        starting = [message for message in manager.heard if "READY" not in message]
        assert starting
        assert all(int(message["EXTEND_TIMEOUT_USEC"]) > 0 for message in starting)
        assert any("loading the checkpoint" in message["STATUS"] for message in starting) or any(
            "starting its process" in message["STATUS"] for message in starting
        )
        kill(running.worker().pid)
        assert "ended unexpectedly" in manager.wait_for("STATUS")["STATUS"]
        running.process.send(signal.SIGTERM)
        assert manager.wait_for("STOPPING")["STOPPING"] == "1"
        assert running.process.wait_for_exit() == 0
    assert sum("READY" in message for message in manager.heard) == 1


LANES = """
[[worker]]
name = "main"

[[worker]]
name = "quick"
python = "{python}"
args = "{quick}"
takes = "short-single"
"""


@pytest.mark.parametrize(("main", "quick"), [("load-for-ever", "none"), ("none", "load-for-ever")])
def test_a_service_with_lanes_is_ready_with_the_first_that_is_and_its_status_names_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, main: str, quick: str
) -> None:
    toml = LANES.format(python=tmp_path / "python", quick=quick)
    other = "main" if main != "none" else "quick"
    with (
        service_manager(str(tmp_path / "notify"), monkeypatch) as manager,
        FakeWorker(tmp_path, main, toml=toml, ADMIN_BIND="127.0.0.1:0") as running,
    ):
        ready = manager.wait_for("READY")
        assert ready["STATUS"].startswith(f"ready, except {other}: the worker is starting")
        # The same is true for whoever asks.
        assert running.ask("GET", "/health").status == 200
        told = ask(running.admin_address, "GET", "/readyz")
        assert (told.status, told.json()["ready"]) == (200, True)
        lanes = {lane["name"]: lane["ready"] for lane in told.json()["lanes"]}
        assert lanes == {"main": other != "main", "quick": other != "quick"}


def test_the_status_of_a_service_with_lanes_follows_each_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toml = LANES.format(python=tmp_path / "python", quick="none of-quick")
    with (
        service_manager(str(tmp_path / "notify"), monkeypatch) as manager,
        FakeWorker(tmp_path, "none", toml=toml) as running,
    ):
        manager.wait_until(lambda status: status == "all lanes are ready")
        (quick,) = (it.pid for it in running.processes() if "of-quick" in it.command)
        kill(quick)
        manager.wait_until(lambda status: "except quick: the worker ended unexpectedly" in status)
        manager.wait_until(lambda status: status == "all lanes are ready")
    assert sum("READY" in message for message in manager.heard) == 1


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not here")
def test_the_systemd_unit_is_valid(tmp_path: Path) -> None:
    text = (SERVICE / "omni-jev.service").read_text()
    # The programs and folders it names are those of a machine that has it installed.
    unit = tmp_path / "omni-jev.service"
    unit.write_text(text.replace("/opt/omni-jev/target/release/omni-jev", str(binary())))
    checked = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, check=False
    )
    ours = [line for line in checked.stderr.splitlines() if "omni-jev.service" in line]
    assert (checked.returncode, ours) == (0, [])


def test_the_systemd_unit_keeps_what_it_writes_and_tries_again_what_may_pass() -> None:
    lines = (SERVICE / "omni-jev.service").read_text().splitlines()
    # A read-only system but for this folder, so each cache has to be in it.
    assert {"ProtectSystem=strict", "CacheDirectory=omni-jev"} <= set(lines)
    assert "Environment=HF_HOME=%C/omni-jev" in lines
    assert "Environment=XDG_CACHE_HOME=%C/omni-jev" in lines
    # An address in use (69) and a hub out of reach (78) may pass; a wrong setting does not.
    assert "RestartPreventExitStatus=64" in lines
    assert any("OMNI_JEV_WORKER_ARGS=" in line for line in lines)


def test_the_launch_agent_is_a_property_list_with_what_launchd_reads() -> None:
    agent = plistlib.loads((SERVICE / "org.omni-jev.plist").read_bytes())
    assert agent["Label"] == "org.omni-jev"
    assert agent["ProgramArguments"][0].endswith("/omni-jev")
    assert agent["KeepAlive"] == {"SuccessfulExit": False}
    # launchd kills after this; the drain and the worker's grace take 40 s at most.
    assert agent["ExitTimeOut"] > 40


def namespaces(*flags: str) -> list[str]:
    """`unshare` with these flags, or a skip where this user may not."""
    words = ["unshare", "--fork", "--kill-child", *flags]
    allowed = shutil.which("unshare") and (
        subprocess.run([*words, "true"], capture_output=True, check=False).returncode == 0
    )
    if not allowed:
        pytest.skip(f"{' '.join(words)} is not allowed here")
    return words


class InNamespace(FakeWorker):
    """The binary started by a script that prepares its namespaces."""

    def __init__(self, folder: Path, script: str, *vice: str, **settings: str) -> None:
        program = folder / "in-namespace"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        super().__init__(folder, *vice, program=str(program), **settings)

    def first_process(self) -> Process:
        """The binary itself, seen from outside."""
        name = binary().name
        found = [p for p in self.processes() if Path(p.command.split()[0]).name == name]
        assert len(found) == 1, self.processes()
        return found[0]

    def child_of(self, parent: int, command: str, seconds: float = 10) -> Process:
        """Wait for the child whose command line holds this."""
        deadline = time.monotonic() + seconds
        while True:
            children = [p for p in self.processes() if p.parent == parent and command in p.command]
            if children:
                return children[0]
            assert time.monotonic() < deadline, self.processes()
            time.sleep(0.02)


@linux_only
def test_as_the_first_process_of_a_container_it_reaps_orphans_and_stops(tmp_path: Path) -> None:
    unshare = " ".join(namespaces("--pid", "--mount-proc"))
    with InNamespace(tmp_path, f'exec {unshare} {binary()} "$@"', "orphan", "3") as running:
        running.wait_until_ready()
        first = running.first_process().pid
        orphan = running.child_of(first, "sleep 3")
        with Clients(running.address) as clients:
            clients.wait_for(200, since=0)
            kill(running.child_of(first, "omni_jev_worker").pid)
            answered = clients.wait_for(200, since=time.monotonic() + 0.1)
            assert answered.took < 5
        # Nobody but the first process could wait for it, and it would stay as a zombie.
        deadline = time.monotonic() + 10
        while Path(f"/proc/{orphan.pid}").exists():
            assert time.monotonic() < deadline, "nobody waits for the orphan"
            time.sleep(0.02)
        assert set(clients.statuses()) <= {200, 502, 503}
        asked = time.monotonic()
        os.kill(first, signal.SIGTERM)
        assert running.process.wait_for_exit(20) == 0
        assert time.monotonic() - asked < 5


@linux_only
def test_a_full_disk_for_the_sockets_ends_the_start_with_69_and_the_reason(tmp_path: Path) -> None:
    unshare = " ".join(namespaces("--mount"))
    # A file system without room for one more folder, where the sockets would go: all three places.
    script = (
        f"exec 9<{binary()}\n"
        f"{unshare} sh -c '\n"
        'for place in "$XDG_RUNTIME_DIR" /tmp; do\n'
        "  mount -t tmpfs -o nr_inodes=1 full $place || exit 99\n"
        "done\n"
        'exec /proc/self/fd/9 "$@"\' omni-jev "$@"'
    )
    # What lies in one of those places cannot be seen; no worker is ever started.
    settings = {"WORKER_PYTHON": "/bin/sh"}
    with InNamespace(tmp_path, script, "none", **settings) as running:
        code = running.process.wait_for_exit(20)
        assert code == 69, running.process.log
        (line,) = [e.text for e in running.process.events if e.text.startswith("omni-jev: ")]
        assert "cannot make a private folder for the worker's socket" in line
        assert "No space left on device" in line
        assert running.processes() == []

"""Wrong settings: one line that names the setting, exit 64, nothing started, no secret shown."""

import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.client import assert_own_error
from tests.harness.decisions import decision
from tests.harness.omni_jev import ROOT, OmniJev, binary
from tests.harness.servers import Reply, Server, never_answering, refusing_address, replying

SECRET = "hunter2-secret"

USAGE = 64
CONFIGURATION = 78


def assert_ends_in_one_line(running: OmniJev, named: str, code: int = USAGE) -> str:
    """The binary ends by itself with the code and one line that holds the name."""
    assert running.process.wait_for_exit(20) == code, running.process.log
    assert running.processes() == []
    lines = [event.text for event in running.process.events if event.text.strip()]
    assert len(lines) == 1, lines
    assert named in lines[0]
    assert SECRET not in running.process.log
    assert running.process.output == []
    return lines[0]


WRONG_VALUES = [
    ("BIND", "nowhere"),
    ("BIND", "127.0.0.1"),
    ("BIND", "127.0.0.1:99999"),
    ("ADMIN_BIND", "nowhere"),
    ("BACKEND_URL", "127.0.0.1:8000"),
    ("BACKEND_URL", "ftp://127.0.0.1:8000"),
    ("BACKEND_URL", "http://"),
    ("BACKEND_URL", "http://127.0.0.1:port"),
    ("BACKEND_URL", "unix:not/absolute"),
    ("BACKEND_URL", f"http://user:{SECRET}@127.0.0.1:8000"),
    ("BACKEND_URL", f"http://{SECRET}@127.0.0.1:8000"),
    ("BACKEND_URL", f"http://127.0.0.1:8000/?key={SECRET}"),
    ("BACKEND_URL", f"http://127.0.0.1:8000/#{SECRET}"),
    ("BACKEND_URL", f"https://user:{SECRET}@127.0.0.1:port/?key={SECRET}"),
    ("BACKEND_TIMEOUT", "soon"),
    ("BACKEND_TIMEOUT", "-1s"),
    ("BACKEND_TIMEOUT", "0s"),
    ("DRAIN_TIMEOUT", "soon"),
    ("MAX_REQUEST_BYTES", "many"),
    ("MAX_REQUEST_BYTES", "-1"),
    ("MAX_RESPONSE_BYTES", "many"),
    ("MAX_IN_FLIGHT", "many"),
    ("MAX_CONNECTIONS", "many"),
    ("BACKEND_TIMEOUT", "500000000000y"),
    ("DRAIN_TIMEOUT", "500000000000y"),
    ("WORKER_RESTART_WINDOW", "500000000000y"),
    ("MAX_IN_FLIGHT", "18446744073709551615"),
    ("MAX_CONNECTIONS", "18446744073709551615"),
    ("MAX_REQUEST_BYTES", "16EiB"),
    ("ALLOW_WITHOUT_KEY", SECRET),
    ("LOG", "nonsense"),
    ("LOG_FORMAT", "xml"),
    ("LOG", "omni_jev=loudest"),
]


@pytest.mark.parametrize(("name", "value"), WRONG_VALUES)
def test_a_wrong_value_is_named_in_one_line(name: str, value: str) -> None:
    with OmniJev({"LOG_FORMAT": None, name: value}, worker_flags=()) as running:
        assert_ends_in_one_line(running, f"OMNI_JEV_{name}")


def test_an_unknown_variable_is_named_in_one_line() -> None:
    settings = {"LOG_FORMAT": None, "BAKEND_URL": "http://127.0.0.1:8000"}
    with OmniJev(settings, worker_flags=()) as running:
        assert_ends_in_one_line(running, "OMNI_JEV_BAKEND_URL")


@pytest.mark.parametrize(
    ("toml", "named"),
    [
        pytest.param('bakend_url = "http://127.0.0.1:1"', "bakend_url", id="unknown-key"),
        pytest.param('backend_timeout = "soon"', "backend_timeout", id="wrong-value"),
        pytest.param("bind = 5", "bind", id="wrong-type"),
        pytest.param("bind = = 5", "omni-jev.toml", id="no-toml"),
        pytest.param(
            f'backend_url = "http://user:{SECRET}@127.0.0.1:1"', "backend_url", id="credentials"
        ),
    ],
)
def test_a_wrong_key_in_the_file_is_named_in_one_line(toml: str, named: str) -> None:
    settings = {"BIND": None, "LOG_FORMAT": None}
    with OmniJev(settings, toml=toml, worker_flags=()) as running:
        line = assert_ends_in_one_line(running, named)
        assert "omni-jev.toml" in line


def test_an_unknown_flag_is_named_in_one_line() -> None:
    with OmniJev({"LOG_FORMAT": None}, arguments=["--no-such-flag"], worker_flags=()) as running:
        assert_ends_in_one_line(running, "--no-such-flag")


def test_worker_flags_contradict_a_backend_of_its_own() -> None:
    settings = {"LOG_FORMAT": None, "BACKEND_URL": "http://127.0.0.1:1"}
    with OmniJev(settings, worker_flags=["--device", "cpu"]) as running:
        assert_ends_in_one_line(running, "OMNI_JEV_BACKEND_URL")


def test_a_python_that_is_not_there_is_named_in_one_line() -> None:
    settings = {"LOG_FORMAT": None, "WORKER_PYTHON": "/nonexistent/bin/python"}
    with OmniJev(settings) as running:
        line = assert_ends_in_one_line(running, "OMNI_JEV_WORKER_PYTHON", CONFIGURATION)
        assert "/nonexistent/bin/python" in line


def test_without_a_python_environment_the_command_that_makes_it_is_named(tmp_path: Path) -> None:
    # A copy, because the binary also looks for the environment above itself.
    program = tmp_path / "omni-jev"
    shutil.copy(binary(), program)
    settings = {"LOG_FORMAT": None, "WORKER_PYTHON": None}
    with OmniJev(settings, program=program) as running:
        assert_ends_in_one_line(running, "cargo xtask", CONFIGURATION)


def test_of_several_workers_the_one_without_a_python_is_named(tmp_path: Path) -> None:
    program = tmp_path / "omni-jev"
    shutil.copy(binary(), program)
    toml = '[[worker]]\nname = "main"\n[[worker]]\nname = "quick"\ntakes = "short-single"\n'
    with OmniJev({"LOG_FORMAT": None}, program=program, toml=toml) as running:
        line = assert_ends_in_one_line(running, "`python` of the [[worker]] quick", CONFIGURATION)
        # That one is given, and is the first worker's alone.
        assert "OMNI_JEV_WORKER_PYTHON" not in line


@pytest.mark.parametrize("files", [6, 7, 8, 12, 32])
def test_too_few_files_that_may_be_opened_are_one_line(tmp_path: Path, files: int) -> None:
    program = tmp_path / "limited"
    program.write_text(f'#!/bin/sh\nulimit -n {files}\nexec {binary()} "$@"\n')
    program.chmod(0o755)
    settings = {"LOG_FORMAT": None, "BACKEND_URL": "http://127.0.0.1:9"}
    with OmniJev(settings, worker_flags=(), program=program) as running:
        assert_ends_in_one_line(running, "ulimit -n", 69)


@pytest.mark.parametrize(
    ("flags", "begins"),
    [
        (["--help"], "usage: omni_jev_worker [-h]"),
        (["-h"], "usage: omni_jev_worker [-h]"),
        (["--device", "cpu", "--version"], "omni_jev_worker 0."),
    ],
)
def test_the_workers_help_and_version_are_shown_as_they_are(flags: list[str], begins: str) -> None:
    with OmniJev(worker_flags=flags) as running:
        assert running.process.wait_for_exit(30) == 0
        assert running.process.events == []
        assert running.process.output[0].startswith(begins)


def test_a_worker_that_only_prints_is_not_started_again(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 'what I do' >&2\n")
    python.chmod(0o755)
    with OmniJev({"WORKER_PYTHON": str(python)}) as running:
        assert running.process.wait_for_exit(30) == CONFIGURATION
        log = running.process.log
        last = running.process.events[-1].text
        assert "exit code 0" in last
        assert "what it wrote is in the log" in last
        # Once, not five times.
        assert log.count("what I do") == 1


def test_a_python_without_the_worker_is_not_tried_again_and_the_cure_is_named(
    tmp_path: Path,
) -> None:
    python = tmp_path / "python"
    # Isolated: neither PYTHONPATH nor what is installed.
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    python.chmod(0o755)
    with OmniJev({"WORKER_PYTHON": str(python)}) as running:
        assert running.process.wait_for_exit(30) == CONFIGURATION
        last = running.process.events[-1].text
        assert str(python) in last
        assert "cargo xtask setup" in last
        assert "OMNI_JEV_WORKER_PYTHON" in last
        assert "next start" not in running.process.log


def test_the_help_names_every_setting_of_the_page() -> None:
    shown = subprocess.run([binary(), "--help"], capture_output=True, text=True, check=True).stdout
    page = (ROOT / "crates" / "omni-jev" / "README.md").read_text(encoding="utf-8")
    variables = re.findall(r"^\| `(OMNI_JEV_[A-Z_]+)` \|", page, re.MULTILINE)
    assert len(variables) > 20
    words = set(re.findall(r"--[a-z-]+|OMNI_JEV_[A-Z_]+", shown))
    for variable in variables:
        flag = "--" + variable.removeprefix("OMNI_JEV_").lower().replace("_", "-")
        assert words & {variable, flag}, f"the help does not name {variable}"


WRONG_FLAGS = [
    ([f"http://user:{SECRET}@host"], "no flag takes"),
    (["--max-in-flight", SECRET], "--max-in-flight"),
    ([f"--recover-device={SECRET}"], "--recover-device"),
    ([f"--backendurl=http://user:{SECRET}@host"], "--backendurl"),
    (["worker", "status", "--pid", SECRET], "--pid"),
]


@pytest.mark.parametrize(("arguments", "named"), WRONG_FLAGS)
def test_a_wrong_flag_is_named_and_its_value_is_not_shown(arguments: list[str], named: str) -> None:
    with OmniJev({"LOG_FORMAT": None}, arguments=arguments, worker_flags=()) as running:
        assert_ends_in_one_line(running, named)


def test_a_wrong_flag_of_the_worker_is_named_and_its_value_is_not_shown() -> None:
    with OmniJev(worker_flags=["--threads", SECRET]) as running:
        assert running.process.wait_for_exit(30) == USAGE
        assert "--threads" in running.process.events[-1].text
        assert SECRET not in running.process.log


def test_an_address_in_use_ends_the_start_before_any_worker() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with OmniJev({"BIND": address}) as running:
            assert running.process.wait_for_exit(20) > 0
            assert running.processes() == []
            assert address in running.process.events[-1].text
            assert all(event["phase"] is None for event in running.process.events)


@pytest.fixture
def backend() -> Iterator[Server]:
    with Server(replying(lambda _: Reply(200, b'{"from":"the backend"}'))) as running:
        yield running


def test_a_variable_wins_over_the_file(backend: Server) -> None:
    with refusing_address() as address:
        toml = f'backend_url = "http://{address}"'
        with OmniJev({"BACKEND_URL": backend.url}, toml=toml, worker_flags=()) as running:
            assert running.ask("GET", "/").body == b'{"from":"the backend"}'


def test_the_file_is_read(backend: Server) -> None:
    toml = f'backend_url = "{backend.url}"'
    with OmniJev({"WORKER_PYTHON": None}, toml=toml, worker_flags=()) as running:
        assert running.ask("GET", "/").body == b'{"from":"the backend"}'


def test_the_prefix_of_the_backends_url_comes_before_each_path() -> None:
    with (
        Server(replying(lambda request: Reply(200, request.path.encode()))) as backend,
        OmniJev({"BACKEND_URL": f"{backend.url}/up/"}, worker_flags=()) as running,
    ):
        assert running.ask("GET", "/v1/models?x=1").body == b"/up/v1/models?x=1"


def test_the_limit_of_a_request_can_be_set(backend: Server) -> None:
    settings = {"BACKEND_URL": backend.url, "MAX_REQUEST_BYTES": "1000"}
    with OmniJev(settings, worker_flags=()) as running:
        assert running.decide(decision("x" * 100)).status == 200
        too_large = running.decide(decision("x" * 1000))
        assert_own_error(too_large, 413, "invalid_request_error")


def test_the_limit_of_an_answer_can_be_set() -> None:
    settings = {"MAX_RESPONSE_BYTES": "1000"}
    with (
        Server(replying(lambda _: Reply(200, b"x" * 1001))) as backend,
        OmniJev({**settings, "BACKEND_URL": backend.url}, worker_flags=()) as running,
    ):
        assert_own_error(running.decide(decision()), 502, "backend_error")


def test_the_drain_timeout_bounds_the_wait_for_an_answer() -> None:
    # The backend never answers, and the default would be to wait for it half a minute.
    settings = {"DRAIN_TIMEOUT": "200ms"}
    with (
        Server(never_answering) as backend,
        OmniJev({**settings, "BACKEND_URL": backend.url}, worker_flags=()) as running,
        running.connect() as client,
    ):
        client.sendall(b"GET / HTTP/1.1\r\nHost: test\r\n\r\n")
        assert backend.accepted.wait(20)
        running.terminate(seconds=15)


ONLY_SHORT = """
[[lane]]
name = "quick"
url = "unix:/nowhere"
takes = "short-single"

[[lane]]
name = "other"
url = "unix:/nowhere"
{other}
"""


@pytest.mark.parametrize(
    ("other", "warns"),
    [("max_questions = 4", True), ("max_questions = 4\nhelps = true", False), ("", False)],
    ids=["limits", "helps", "everything"],
)
def test_lanes_of_which_none_takes_every_decision_are_warned_of(other: str, *, warns: bool) -> None:
    toml = ONLY_SHORT.format(other=other)
    with OmniJev({"WORKER_PYTHON": None}, toml=toml, worker_flags=()) as running:
        # Its line in the log comes after all that is said of lanes.
        assert running.ask("GET", "/health").status == 502
        running.process.wait_for("the request", lambda event: event["path"] == "/health")
        assert ("no lane takes every decision" in running.process.log) == warns

"""The worker as a process: exit codes, readiness, the lifeline, stopping."""

import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from omni_jev_worker.processors import has_native_bf16
from running_worker import LONG, SOURCE, Kept, RunningWorker, environment, run

NOUL = {"type": "noul", "instructions": "Does the customer ask for a refund?"}
ASKED = {"model": "jev-latest", "state": "Please refund the charge.", "questions": {"refund": NOUL}}


@pytest.fixture(scope="module")
def mps_asked(tiny: Path) -> Iterator[Kept]:
    """A worker that is to use MPS if there is one, and to stop soon when it is asked to."""
    flags = ["--model", str(tiny), "--device", "mps", "--drain-timeout", "0.2"]
    with Kept(lambda: RunningWorker(flags)) as kept:
        yield kept


@pytest.fixture(scope="module")
def on_a_left_socket(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    """A worker with one thread, on a socket that was there before it and that nobody listens to."""
    path = tmp_path_factory.mktemp("left") / "w.sock"

    def start() -> RunningWorker:
        path.unlink(missing_ok=True)
        left = socket.socket(socket.AF_UNIX)
        left.bind(str(path))
        left.close()
        return RunningWorker(["--model", str(tiny), "--threads", "1", "--uds", str(path)])

    with Kept(start) as kept:
        yield kept


def last_line(stderr: str) -> str:
    lines = stderr.strip().splitlines()
    assert len(lines) == 1, f"one line, not {lines}"
    line = json.loads(lines[0])
    assert line["level"] == "error"
    return str(line["message"])


def torch_has_a_gpu() -> bool:
    import torch

    return torch.cuda.is_available() or torch.backends.mps.is_available()


def test_help_names_every_flag_and_exits_0() -> None:
    ended = run(["--help"])
    assert ended.returncode == 0
    for flag in ("--device", "--model", "--require-device", "--uds", "--port", "--threads"):
        assert flag in ended.stdout


def test_a_bad_flag_exits_64_in_one_line() -> None:
    ended = run(["--device", "tpu"])
    assert ended.returncode == 64
    assert "--device" in last_line(ended.stderr)


def test_a_missing_checkpoint_exits_78_in_one_line(tmp_path: Path) -> None:
    ended = run(["--model", str(tmp_path / "nothing")])
    assert ended.returncode == 78
    assert str(tmp_path / "nothing") in last_line(ended.stderr)


def test_a_truncated_checkpoint_exits_78_in_one_line(tiny: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(tiny, tmp_path / "copy"))
    weights = copy / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    ended = run(["--model", str(copy)])
    assert ended.returncode == 78
    assert "model.safetensors" in last_line(ended.stderr)


def test_an_unreachable_hub_checkpoint_exits_78_in_one_line(tmp_path: Path) -> None:
    ended = run(["--model", "english", "--log-level", "error"], HF_HOME=str(tmp_path))
    assert ended.returncode == 78
    message = last_line(ended.stderr)
    assert "convaiinnovations/laya" in message
    assert "main" in message


def test_parity_alone_prints_its_table_and_says_by_its_exit_code_whether_all_runs(
    tiny: Path, tmp_path: Path
) -> None:
    flags = ["parity", "--log-level", "error", "--compile-cache", str(tmp_path)]
    off = run([*flags, "--model", str(tiny), "--weights", "fp16"])
    if not torch_has_a_gpu():
        assert off.returncode == 78, off.stderr
        assert "off: --weights fp16: the model is on the CPU" in off.stdout
        assert off.stdout.splitlines()[-1].endswith("laya's own precision, uncompiled")
    if not has_native_bf16():
        return
    on = run([*flags, "--device", "cpu", "--weights", "bf16"])
    assert on.returncode == 0, on.stderr
    table = on.stdout.splitlines()
    assert table[0].split() == [
        *("row", "tokens", "options", "alone", "together", "to"),
        *("act", "decision"),
    ]
    assert len(table) >= 22
    assert all(line.endswith("same") for line in table[1:-2])
    assert table[-1] == "asked for: --weights bf16; runs with: --weights bf16"


def test_parity_of_nothing_exits_64_in_one_line() -> None:
    ended = run(["parity"])
    assert ended.returncode == 64
    assert "parity needs --compile, --weights or --engine" in last_line(ended.stderr)


@pytest.mark.parametrize(
    "flags",
    [
        ["--help"],
        ["--device", "tpu"],
        ["--no-such-flag"],
        ["--model", "/nothing"],
        ["--model", "demo"],
        ["--model", "english"],
    ],
)
def test_what_needs_no_torch_is_answered_without_importing_it(flags: list[str]) -> None:
    code = (
        "import sys; from omni_jev_worker import cli; cli.main(sys.argv[1:]);"
        "sys.__stdout__.write('\\nheavy: ' + ' '.join(m for m in ('torch', 'transformers', 'numpy',"
        " 'laya', 'uvicorn', 'huggingface_hub', 'importlib.metadata') if m in sys.modules))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code, *flags],
        env=environment({"OMNI_JEV_DEMO_DIR": "/nothing", "HF_HOME": "/nothing"}),
        capture_output=True,
        text=True,
        timeout=LONG,
        check=True,
    )
    assert ended.stdout.splitlines()[-1].strip() == "heavy:"


@pytest.mark.skipif(sys.platform == "darwin", reason="a Mac has MPS")
def test_a_required_device_that_is_not_there_exits_78_in_one_line(tiny: Path) -> None:
    ended = run(["--model", str(tiny), "--device", "mps", "--require-device"])
    assert ended.returncode == 78
    assert "mps" in last_line(ended.stderr)


@pytest.mark.skipif(sys.platform == "darwin", reason="refused before the device is looked for")
def test_a_required_device_that_torch_does_not_find_exits_78(tiny: Path) -> None:
    flags = ["--model", str(tiny), "--device", "cuda", "--require-device", "--log-level", "error"]
    ended = run(flags, CUDA_VISIBLE_DEVICES="")
    assert ended.returncode == 78
    assert "cuda" in last_line(ended.stderr)


@pytest.mark.skipif(sys.platform == "darwin", reason="a Mac has MPS")
def test_a_device_that_is_not_there_and_not_required_is_told_and_served_from_the_cpu(
    mps_asked: Kept,
) -> None:
    worker = mps_asked.running()
    health = worker.ask("GET", "/health").json()
    assert health["device_mismatch"] is True
    assert (health["status"], health["ready"]) == ("degraded", True)
    assert (health["device"], health["requested_device"]) == ("cpu", "mps")
    assert worker.decide(ASKED).status == 200
    assert any(line["level"] == "warning" and "mps" in line["message"] for line in worker.lines)


def test_a_host_that_does_not_exist_exits_78_before_anything_is_loaded(tiny: Path) -> None:
    ended = run(["--model", str(tiny), "--port", "0", "--host", "256.1.1.1"])
    assert ended.returncode == 78
    assert "256.1.1.1" in last_line(ended.stderr)


def test_a_checkpoint_that_cannot_be_loaded_exits_78_in_one_line(
    tiny: Path, tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(tiny, tmp_path / "copy"))
    config = copy / "encoder" / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "hidden_size": "abc"}))
    ended = run(["--model", str(copy), "--log-level", "error"])
    assert ended.returncode == 78
    assert "hidden_size" in last_line(ended.stderr)


BROKEN_BODY = (
    b"POST /v1/systemone HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n"
    b"x-request-id: its-own\r\n\r\nzz\r\n"
)


@pytest.mark.parametrize(
    ("sent", "identity"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", None),
        (b"POST /v1/systemone HTTP/1.1\r\nhost: x\r\ncontent-length: -5\r\n\r\n", None),
        (b"GET /health HTTP/1.1\r\nhost: x\r\nx: " + b"a" * 70_000, None),
        (BROKEN_BODY, "its-own"),
    ],
)
def test_what_is_no_http_is_a_400_in_the_clients_shape_with_its_ids(
    worker: RunningWorker, sent: bytes, identity: str | None
) -> None:
    with socket.create_connection(("127.0.0.1", worker.ready["port"]), LONG) as connection:
        connection.sendall(sent)
        response = http.client.HTTPResponse(connection)
        response.begin()
        assert response.status == 400
        assert response.headers["content-type"] == "application/json"
        assert response.headers["x-request-id"] == response.headers["x-typesafe-request-id"]
        if identity is not None:
            assert response.headers["x-request-id"] == identity
        assert json.loads(response.read())["detail"]["error_type"] == "invalid_request_error"
    assert worker.ask("GET", "/health").status == 200
    assert not [line for line in worker.lines if line.get("level") == "error"]


def test_an_address_in_use_exits_78_before_anything_is_loaded(tiny: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        ended = run(["--model", str(tiny), "--port", port])
    assert ended.returncode == 78
    assert port in last_line(ended.stderr)


def test_a_socket_path_that_is_too_long_exits_78(tiny: Path, tmp_path: Path) -> None:
    ended = run(["--model", str(tiny), "--uds", str(tmp_path / ("x" * 120))])
    assert ended.returncode == 78
    assert "--uds" in last_line(ended.stderr)


def test_every_log_line_is_a_json_object_and_standard_output_is_unused(
    worker: RunningWorker,
) -> None:
    assert worker.lines
    assert all(line.get("level") and line.get("message") for line in worker.lines), worker.lines
    phases = [line.get("phase") for line in worker.lines]
    for phase in ("import", "load", "warmup", "ready"):
        assert phase in phases


def test_the_log_says_how_many_threads_torch_gets_and_who_chose_them(
    on_a_left_socket: Kept,
) -> None:
    worker = on_a_left_socket.running()
    (line,) = [line for line in worker.lines if "threads" in line]
    assert (line["threads"], line["chosen_by"]) == (1, "--threads")
    assert worker.ask("GET", "/health").json()["threads"] == 1


def test_the_ready_line_has_the_real_port(worker: RunningWorker) -> None:
    assert worker.ready["port"] > 0
    assert worker.ready["address"] == f"http://127.0.0.1:{worker.ready['port']}"


def test_a_ready_worker_has_warmed_up_and_says_all_of_itself(worker: RunningWorker) -> None:
    health = worker.ask("GET", "/health").json()
    assert health["status"] == "ready"
    assert health["warmup_ms"] > 0
    assert health["device"] == "cpu"
    assert health["weights_dtype"] == "torch.float32"
    assert health["loaded"] == ["tiny"]
    assert health["models"]["tiny"]["warmup_ms"] == health["warmup_ms"]
    # It has no revision, so its files say which it is.
    assert re.fullmatch("[0-9a-f]{64}", health["checkpoint_hash"])
    for field in ("autocast_dtype", "mps_amp_min_rows", "revision", "preparing", "uptime_s"):
        assert field in health


def test_a_request_is_answered_over_tcp(worker: RunningWorker) -> None:
    reply = worker.decide(ASKED, x_request_id="from-the-client")
    assert reply.status == 200
    assert 0 <= reply.json()["answers"]["refund"]["noul"] <= 1
    assert reply.headers["x-typesafe-request-id"] == "from-the-client"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 422),
        (b"refund", 422),
        (b"[]", 422),
        (b"[" * 100_000, 422),
        (b'{"state":"x","questions":{"q":{"type":["noul"]}}}', 422),
        (b'{"state":"\\ud800","questions":{"q":{"type":"noul"}}}', 422),
        (b'{"state":[1e999],"questions":{"q":{"type":"noul"}}}', 422),
        (b" " * 3_000_000, 413),
    ],
)
def test_a_bad_body_over_the_wire_gets_its_4xx_and_the_next_one_its_answer(
    worker: RunningWorker, body: bytes, status: int
) -> None:
    reply = worker.decide(body)
    assert reply.status == status
    assert reply.headers["x-request-id"]
    assert b"Traceback" not in reply.body
    assert worker.decide(ASKED).status == 200


def test_the_socket_that_a_killed_worker_left_is_taken_over(on_a_left_socket: Kept) -> None:
    assert on_a_left_socket.running().ask("GET", "/health").status == 200


def test_asked_to_stop_it_answers_what_is_in_flight_and_exits_0(on_a_left_socket: Kept) -> None:
    worker = on_a_left_socket.running()
    path = Path(str(worker.ready["address"]).removeprefix("unix:"))
    assert worker.ready["address"] == f"unix:{path}"
    assert path.stat().st_mode & 0o077 == 0
    connection = worker.connect()
    body = json.dumps(ASKED).encode()
    # The head and half of the body: the request is in flight and cannot be answered yet.
    connection.putrequest("POST", "/v1/systemone")
    connection.putheader("content-length", str(len(body)))
    connection.endheaders(body[:20])
    assert worker.decide(ASKED).status == 200
    worker.process.send_signal(signal.SIGTERM)
    worker.wait_for("draining")
    connection.send(body[20:])
    reply = connection.getresponse()
    assert reply.status == 200
    assert "refund" in json.loads(reply.read())["answers"]
    connection.close()
    assert worker.wait_for_end() == 0
    assert not path.exists()
    assert worker.process.stdout is not None
    assert worker.process.stdout.read() == ""


def test_what_does_not_finish_within_the_budget_does_not_keep_it_alive(mps_asked: Kept) -> None:
    worker = mps_asked.running()
    connection = worker.connect()
    connection.putrequest("POST", "/v1/systemone")
    connection.putheader("content-length", "100")
    connection.endheaders(b"{")
    assert worker.decide(ASKED).status == 200
    worker.process.send_signal(signal.SIGTERM)
    assert worker.wait_for_end() == 0
    connection.close()


def test_asked_to_stop_while_it_loads_it_exits_0(tiny: Path) -> None:
    with RunningWorker(["--model", str(tiny)], wait=False) as worker:
        worker.wait_for("import")
        worker.process.send_signal(signal.SIGTERM)
        assert worker.wait_for_end() == 0


def test_a_file_in_the_sockets_place_is_left_alone(tiny: Path, tmp_path: Path) -> None:
    path = tmp_path / "precious"
    path.write_text("data")
    ended = run(["--model", str(tiny), "--uds", str(path)])
    assert ended.returncode == 78
    assert path.read_text() == "data"


@pytest.mark.parametrize("phase", ["import", "ready"])
def test_the_end_of_the_lifeline_ends_the_worker(tiny: Path, phase: str) -> None:
    lifeline = {
        "OMNI_JEV_LIFELINE": "stdin",
        "OMNI_JEV_SUPERVISOR_PID": str(os.getpid()),
        "OMNI_JEV_INSTANCE": "abc123",
    }
    flags = ["--model", str(tiny)]
    with RunningWorker(flags, wait=False, stdin=subprocess.PIPE, **lifeline) as worker:
        worker.wait_for(phase)
        if phase == "ready":
            assert worker.ask("GET", "/health").json()["instance"] == "abc123"
        assert worker.process.stdin is not None
        worker.process.stdin.close()
        worker.wait_for_end()


def test_a_worker_whose_supervisor_is_already_gone_ends_at_once(tiny: Path) -> None:
    # The test is its parent, not process 1: as if the supervisor had died before it could ask.
    lifeline = {"OMNI_JEV_LIFELINE": "stdin", "OMNI_JEV_SUPERVISOR_PID": "1"}
    flags = ["--model", str(tiny)]
    with RunningWorker(flags, wait=False, stdin=subprocess.PIPE, **lifeline) as worker:
        worker.wait_for_end()
        assert worker.lines == []


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a parent-death signal")
def test_a_killed_supervisor_takes_a_worker_along_that_cannot_read_its_lifeline(
    tmp_path: Path,
) -> None:
    # The child holds the interpreter's lock for good, so that its reading thread never runs, and
    # inherits the write end of its own lifeline, so that there is no end of file either.
    child = (
        "import ctypes, os; from omni_jev_worker import lifeline; lifeline.hold();"
        "os.write(1, b'held'); ctypes.PyDLL(None).sleep(60); os.write(1, b'outlived')"
    )
    parent = (
        "import os, subprocess, sys, time; r, w = os.pipe();"
        "e = dict(os.environ, OMNI_JEV_LIFELINE='stdin', OMNI_JEV_SUPERVISOR_PID=str(os.getpid()));"
        "subprocess.Popen([sys.executable, '-c', sys.argv[1]], stdin=r, env=e, pass_fds=[w]);"
        "time.sleep(600)"
    )
    supervisor = subprocess.Popen(
        [sys.executable, "-c", parent, child],
        stdout=subprocess.PIPE,
        env=environment({"PYTHONPATH": str(SOURCE)}),
    )
    assert supervisor.stdout is not None
    assert supervisor.stdout.read(4) == b"held"
    supervisor.kill()
    supervisor.wait(LONG)
    # Standard output is the child's as well: its end of file is the child's end.
    assert supervisor.stdout.read() == b""
    supervisor.stdout.close()


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such signals")
def test_sigabrt_shows_where_every_thread_is(worker: RunningWorker) -> None:
    worker.process.send_signal(signal.SIGABRT)
    worker.wait_for_end()
    text = " ".join(str(line.get("not_json", "")) for line in worker.lines)
    assert "engine.py" in text
    assert "queue.py" in text

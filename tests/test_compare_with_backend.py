"""`recipe/laya/compare_with_backend.py` alone, against small servers of the test's own."""

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness.omni_jev import ROOT
from tests.harness.servers import (
    Received,
    Reply,
    Server,
    breaking_off,
    flip_one_byte,
    forwarding,
    never_answering,
    refusing_address,
    replying,
)

SCRIPT = ROOT / "recipe" / "laya" / "compare_with_backend.py"
SECRET = "hunter2-secret"

HEALTH = {
    "status": "ready",
    "uptime_s": 17.25,
    "queue": {"depth": 0, "oldest_ms": None},
    "parity": {"rechecks": 4, "checked_at": "2026-05-01T12:00:00+00:00"},
}


def run_script(
    backend: str, frontend: str, *flags: str, token: str | None = None
) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k != "OMNI_JEV_TEST_TOKEN"}
    if token is not None:
        environment["OMNI_JEV_TEST_TOKEN"] = token
    arguments = ["--model=m", f"--backend={backend}", f"--frontend={frontend}", *flags]
    run = subprocess.run(
        [sys.executable, SCRIPT, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=environment,
    )
    assert SECRET not in run.stdout + run.stderr
    assert "Traceback" not in run.stderr, run.stderr
    return run


def lines(run: subprocess.CompletedProcess[str], word: str) -> dict[str, str]:
    """The reasons of all lines with this first word, by the name of their check."""
    found = [line.split(maxsplit=2) for line in run.stdout.splitlines()]
    return {name: reason for first, name, reason in found if first == word}


def well_behaved(request: Received) -> Reply:
    """Answer as a backend does, with a body that is a function of the request."""
    if request.path == "/health":
        return Reply(200, json.dumps(HEALTH).encode())
    questions = json.loads(request.body)["questions"]
    if any(question["type"] == "weather" for question in questions.values()):
        return Reply(422, b'{"detail":[]}')
    return Reply(200, json.dumps({"answers": sorted(questions), "note": SECRET}).encode())


@pytest.fixture
def backend() -> Server:
    return Server(replying(well_behaved))


def through(backend: Server, change: Callable[[Received, Reply], Reply]) -> Server:
    return Server(forwarding(backend.address, change))


def test_a_faithful_frontend_passes_every_check(backend: Server) -> None:
    with backend, through(backend, lambda _, reply: reply) as frontend:
        run = run_script(backend.url, frontend.url)
    passed = ["health", "choice", "score", "noul", "together", "invalid", "large"]
    assert list(lines(run, "PASS")) == passed
    assert run.stdout.splitlines()[-1] == "7 checks: 7 passed, 0 failed"
    assert run.stderr == ""
    assert run.returncode == 0


def test_both_sides_receive_the_same_bytes() -> None:
    received: dict[str, list[bytes]] = {"backend": [], "frontend": []}

    def keeping(side: str) -> Callable[[Received], Reply]:
        def answer(request: Received) -> Reply:
            received[side].append(request.body)
            return well_behaved(request)

        return answer

    with (
        Server(replying(keeping("backend"))) as one,
        Server(replying(keeping("frontend"))) as other,
    ):
        assert run_script(one.url, other.url).returncode == 0
    assert received["backend"] == received["frontend"]
    sizes = [len(body) for body in received["backend"]]
    assert len(sizes) == 7
    assert sizes[-1] > 40_000


def test_one_flipped_byte_fails_with_its_position_and_exit_1(backend: Server) -> None:
    def meddle(request: Received, reply: Reply) -> Reply:
        return flip_one_byte(reply) if b'"refund"' in request.body else reply

    with backend, through(backend, meddle) as frontend:
        run = run_script(backend.url, frontend.url)
    failed = lines(run, "FAIL")
    assert list(failed) == ["noul", "together", "large"]
    assert "body differs from byte" in failed["noul"]
    assert "it changed on the way" in failed["noul"]
    assert run.stdout.splitlines()[-1] == "7 checks: 4 passed, 3 failed"
    assert run.returncode == 1


def test_a_byte_added_at_the_end_fails(backend: Server) -> None:
    with (
        backend,
        through(backend, lambda _, r: Reply(r.status, r.body + b"\n", r.headers)) as frontend,
    ):
        run = run_script(backend.url, frontend.url)
    assert len(lines(run, "FAIL")) == 7
    assert run.returncode == 1


def test_another_status_fails_and_is_named(backend: Server) -> None:
    with backend, through(backend, lambda _, r: Reply(502, r.body, r.headers)) as frontend:
        run = run_script(backend.url, frontend.url)
    reason = lines(run, "FAIL")["choice"]
    assert "status 200 directly, 502 through the frontend" in reason
    assert run.returncode == 1


def test_another_content_type_fails_and_is_named(backend: Server) -> None:
    with (
        backend,
        through(backend, lambda _, r: Reply(r.status, r.body, {"Content-Type": "text/a"})) as front,
    ):
        run = run_script(backend.url, front.url)
    reason = lines(run, "FAIL")["choice"]
    assert "content type 'application/json' directly, 'text/a' through the frontend" in reason
    assert run.returncode == 1


def changing_health(**changes: object) -> Callable[[Received, Reply], Reply]:
    def change(request: Received, reply: Reply) -> Reply:
        if request.path != "/health":
            return reply
        return Reply(200, json.dumps({**HEALTH, **changes}).encode())

    return change


def test_the_live_numbers_of_health_are_set_aside_and_named(backend: Server) -> None:
    parity = {"rechecks": 5, "checked_at": "2026-05-01T12:00:09+00:00"}
    change = changing_health(uptime_s=18, queue={"depth": 0, "oldest_ms": 12.5}, parity=parity)
    with backend, through(backend, change) as frontend:
        run = run_script(backend.url, frontend.url)
    reason = lines(run, "PASS")["health"]
    assert "equal but for the values of uptime_s, oldest_ms, rechecks, checked_at" in reason
    assert run.returncode == 0


@pytest.mark.parametrize(
    "changes", [{"status": "degraded"}, {"uptime_s": "long"}, {"more": 1}, {"queue": {}}]
)
def test_any_other_change_of_health_fails(backend: Server, changes: dict[str, object]) -> None:
    with backend, through(backend, changing_health(**changes)) as frontend:
        run = run_script(backend.url, frontend.url)
    assert "set aside" in lines(run, "FAIL")["health"]
    assert run.returncode == 1


def test_live_numbers_are_set_aside_in_health_only() -> None:
    def answer(request: Received) -> Reply:
        return well_behaved(request) if request.path == "/health" else Reply(200, b'{"depth": 2}')

    def meddle(_request: Received, reply: Reply) -> Reply:
        return Reply(reply.status, reply.body.replace(b"2}", b"3}"), reply.headers)

    backend = Server(replying(answer))
    with backend, through(backend, meddle) as frontend:
        run = run_script(backend.url, frontend.url)
    assert list(lines(run, "PASS")) == ["health"]
    assert run.returncode == 1


def test_a_backend_that_does_not_repeat_itself_fails_but_does_not_accuse_the_frontend() -> None:
    numbers = itertools.count()

    def answer(request: Received) -> Reply:
        reply = well_behaved(request)
        return Reply(reply.status, reply.body + str(next(numbers)).encode())

    moody = Server(replying(answer))
    with moody, through(moody, lambda _, reply: reply) as frontend:
        run = run_script(moody.url, frontend.url)
    assert "it is not repeatable" in lines(run, "FAIL")["choice"]
    assert run.returncode == 1


def test_a_token_is_sent_both_ways_and_never_shown() -> None:
    seen = []

    def answer(request: Received) -> Reply:
        seen.append(request.headers.get("authorization"))
        return well_behaved(request)

    with Server(replying(answer)) as one, Server(replying(answer)) as other:
        run = run_script(one.url, other.url, token=SECRET)
    assert run.returncode == 0
    assert seen == [f"Bearer {SECRET}"] * 14


def test_without_a_token_no_authorization_is_sent() -> None:
    seen = []

    def answer(request: Received) -> Reply:
        seen.append(request.headers.get("authorization"))
        return well_behaved(request)

    with Server(replying(answer)) as backend:
        assert run_script(backend.url, backend.url).returncode == 0
    assert set(seen) == {None}


def test_two_equal_refusals_are_no_pass() -> None:
    with Server(replying(lambda _: Reply(401, b"{}"))) as backend:
        run = run_script(backend.url, backend.url)
    assert lines(run, "PASS") == {}
    assert "status 401 where 200 was meant" in lines(run, "FAIL")["choice"]
    assert "OMNI_JEV_TEST_TOKEN" in lines(run, "FAIL")["choice"]
    assert run.returncode == 1


def test_a_body_that_breaks_off_on_the_way_fails(backend: Server) -> None:
    with backend, Server(breaking_off) as frontend:
        run = run_script(backend.url, frontend.url)
    assert lines(run, "FAIL")["choice"] == "through the frontend: the answer broke off"
    assert run.returncode == 1


def test_a_frontend_that_never_answers_fails_after_the_timeout(backend: Server) -> None:
    with backend, Server(never_answering) as frontend:
        run = run_script(backend.url, frontend.url, "--timeout=0.2")
    assert "no whole answer within 0.2 s" in lines(run, "FAIL")["choice"]
    assert run.returncode == 1


@pytest.mark.parametrize("out_of_reach", ["backend", "frontend"])
def test_a_side_out_of_reach_is_named_and_exits_2(backend: Server, out_of_reach: str) -> None:
    with backend, refusing_address() as address:
        urls = {"backend": backend.url, "frontend": backend.url}
        run = run_script(**(urls | {out_of_reach: f"http://{address}"}))
    assert f"cannot reach the {out_of_reach} at http://{address}" in run.stderr
    assert len(run.stderr.splitlines()) == 1
    assert run.returncode == 2


@pytest.mark.parametrize(
    "url",
    [
        "127.0.0.1:8000",
        "ftp://127.0.0.1",
        "http://",
        "http://127.0.0.1:port",
        "unix:not/absolute",
        f"http://user:{SECRET}@127.0.0.1",
        f"http://127.0.0.1/?key={SECRET}",
        f"http://127.0.0.1/#{SECRET}",
        f"http://127.0.0.1/ {SECRET}",
        f"http://127.0.0.1:{SECRET}",
    ],
)
def test_a_url_that_cannot_be_used_exits_2_and_names_its_flag(url: str) -> None:
    run = run_script("http://127.0.0.1:1", url)
    assert "--frontend: " in run.stderr
    assert len(run.stderr.splitlines()) == 1
    assert run.stdout == ""
    assert run.returncode == 2


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "soon"])
def test_a_timeout_that_cannot_be_used_exits_2(seconds: str) -> None:
    run = run_script("http://127.0.0.1:1", "http://127.0.0.1:1", f"--timeout={seconds}")
    assert "--timeout" in run.stderr
    assert run.returncode == 2


def test_a_token_that_cannot_stand_in_a_header_exits_2() -> None:
    run = run_script("http://127.0.0.1:1", "http://127.0.0.1:1", token=f"{SECRET}\nX-More: 1")
    assert "OMNI_JEV_TEST_TOKEN" in run.stderr
    assert run.returncode == 2


def test_unix_sockets_and_path_prefixes_are_understood(tmp_path: Path) -> None:
    def with_prefix(request: Received) -> Reply:
        assert request.path.startswith("/up/")
        path = request.path.removeprefix("/up")
        return well_behaved(Received(request.method, path, request.headers, request.body))

    with (
        Server(replying(well_behaved), tmp_path / "s") as one,
        Server(replying(with_prefix)) as other,
    ):
        run = run_script(one.url, f"{other.url}/up/")
    assert run.returncode == 0, run.stdout


def test_a_frontend_before_another_worker_is_called_that() -> None:
    def of(instance: str) -> Callable[[Received], Reply]:
        def reply(request: Received) -> Reply:
            if request.path == "/health":
                return Reply(200, json.dumps(HEALTH | {"instance": instance}).encode())
            return well_behaved(request)

        return reply

    with Server(replying(of("a"))) as backend, Server(replying(of("b"))) as other:
        run = run_script(backend.url, other.url)
    assert "OMNI_JEV_BACKEND_URL" in lines(run, "FAIL")["health"]
    assert run.returncode == 1

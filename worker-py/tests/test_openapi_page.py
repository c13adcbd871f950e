"""The OpenAPI page is valid, and says of every answer and every error what it is."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from openapi_schema_validator import OAS31Validator
from openapi_spec_validator import validate
from referencing import Registry
from referencing.jsonschema import DRAFT202012

from omni_jev_worker import bodies, checkpoints
from omni_jev_worker.engine import InferenceFailed
from omni_jev_worker.http import Request as HttpRequest
from omni_jev_worker.model import Model
from omni_jev_worker.protocol import openapi, problems, render
from omni_jev_worker.protocol.dialects import DIALECTS
from omni_jev_worker.protocol.problems import Problem
from running_worker import RunningWorker
from test_app import ASKED, Reply, Served

PAGE: dict[str, Any] = json.loads(openapi.page())
REGISTRY: Registry[Any] = Registry().with_resource("urn:page", DRAFT202012.create_resource(PAGE))
ROUTING = {"model": "m", "repo": "r", "reason": "why", "detection": None, "workflow": None}


def resolved(part: dict[str, Any]) -> dict[str, Any]:
    """What a reference within the page stands for."""
    while "$ref" in part:
        found: Any = PAGE
        for name in part["$ref"].removeprefix("#/").split("/"):
            found = found[name]
        part = found
    return part


def faults(body: Any, pointer: str) -> list[str]:
    """What a value has that the schema at a place in the page does not allow."""
    schema = {"$ref": f"urn:page#{pointer}"}
    return [fault.message for fault in OAS31Validator(schema, registry=REGISTRY).iter_errors(body)]


def assert_described(method: str, path: str, reply: Any) -> None:
    """The page has this status for this operation, with these headers and this body."""
    place = path.replace("/", "~1")
    response = PAGE["paths"][path][method]["responses"][str(reply.status)]
    pointer = f"/paths/{place}/{method}/responses/{reply.status}"
    if "$ref" in response:
        pointer = response["$ref"].removeprefix("#")
    described = resolved(response)
    assert faults(reply.json(), f"{pointer}/content/application~1json/schema") == []
    headers = {name.lower(): value for name, value in reply.headers.items()}
    for name, header in described["headers"].items():
        assert not resolved(header)["required"] or name.lower() in headers, name


def test_it_is_a_valid_openapi_page() -> None:
    validate(PAGE)


def test_it_has_the_routes_that_there_are_but_for_the_supervisors_own(tmp_path: Path) -> None:
    there = {
        (path, method.lower())
        for path, methods in Served(tmp_path).app.routes.items()
        for method in methods
        if not path.startswith("/control/")
    }
    assert there == {(path, name) for path, item in PAGE["paths"].items() for name in item}


def test_it_is_served(worker: RunningWorker) -> None:
    reply = worker.ask("GET", "/openapi.json")
    assert reply.headers["content-type"] == "application/json"
    assert reply.body == openapi.page()
    assert_described("get", "/openapi.json", reply)


@pytest.mark.parametrize("path", ["/health", "/v1/models"])
def test_it_describes_what_a_worker_says_of_itself(worker: RunningWorker, path: str) -> None:
    assert_described("get", path, worker.ask("GET", path))


@pytest.mark.parametrize("path", ["/v1/systemone", "/v1/systemone/batch"])
def test_its_examples_are_answered_as_it_says(worker: RunningWorker, path: str) -> None:
    example = PAGE["paths"][path]["post"]["requestBody"]["content"]["application/json"]["example"]
    reply = worker.ask("POST", path, json.dumps(example).encode())
    assert reply.status == 200
    assert_described("post", path, reply)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_it_describes_answers_of_every_type_and_dialect(tiny: Path, dialect: str) -> None:
    model = Model(checkpoints.from_folder(str(tiny)), "cpu")
    wide = {f"option {number}": "late parcel" for number in range(120)}
    questions: dict[str, dict[str, Any]] = {
        "yes": {"type": "noul", "instructions": "late?"},
        "which": {"type": "choice", "instructions": "team", "criteria": {"a": None, "b": "c"}},
        "level": {"type": "score", "instructions": "", "criteria": ["calm", {"a": 1}, ["angry"]]},
        "wide": {"type": "choice", "instructions": "team", "criteria": wide},
    }
    encoded = model.encode("parcel came late " * 100, questions)
    scores = model.infer([encoded])[0]
    assert not isinstance(scores, Exception)
    answers, notes = model.decode(encoded, scores), encoded.notes()
    body = render.decision(answers, notes, 7, ROUTING, dialect)
    assert "x_option_groups" in body["answers"]["wide"]
    assert "x_truncated" in body["answers"]["yes"]
    name = {"laya": "LayaDecision", "jev": "JevDecision"}[dialect]
    assert faults(body, f"/components/schemas/{name}") == []
    beside = [Problem(422, [{"loc": ["body"], "msg": "m", "type": "t"}]), problems.internal()]
    batch = render.batch([body, *beside])
    assert faults(batch, "/components/schemas/BatchDecision") == []
    # It must be able to say no.
    body["answers"]["yes"]["noul"] = None
    assert faults(body, f"/components/schemas/{name}") != []


def body_of(**fields: Any) -> bytes:
    return json.dumps({**ASKED, **fields}).encode()


def out_of_time(served: Served, patch: pytest.MonkeyPatch) -> Reply:
    async def never(_: Any) -> None:
        await asyncio.Event().wait()

    patch.setattr(HttpRequest, "part", never)
    patch.setattr(bodies, "_BODY_SECONDS", 0.0)
    return asyncio.run(served.send())


def with_a_full_queue(served: Served, _: pytest.MonkeyPatch) -> Reply:
    with served.queue.admit(8):
        return asyncio.run(served.send())


def failing(served: Served, _: pytest.MonkeyPatch) -> Reply:
    def fail(result: Any) -> None:
        result.set_exception(InferenceFailed())

    return asyncio.run(served.answering(fail, served.send()))


def plainly(**request: Any) -> Callable[[Served, pytest.MonkeyPatch], Reply]:
    return lambda served, _: asyncio.run(served.send(**request))


@pytest.mark.parametrize(
    ("status", "options", "ask"),
    [
        (400, {}, plainly(headers={"content-encoding": "gzip"})),
        (401, {"key": b"k"}, plainly()),
        (405, {}, plainly(method="PUT")),
        (408, {}, out_of_time),
        (413, {}, plainly(body=body_of(state="x" * 50_001))),
        (415, {}, plainly(headers={"content-encoding": "br"})),
        (422, {}, plainly(body=body_of(questions={}))),
        (500, {}, failing),
        (503, {}, with_a_full_queue),
        (504, {"request_timeout": 0.0}, plainly()),
    ],
)
def test_it_describes_every_error(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    options: dict[str, Any],
    ask: Callable[[Served, pytest.MonkeyPatch], Reply],
) -> None:
    reply = ask(Served(tmp_path, **options), monkeypatch)
    assert reply.status == status
    assert_described("post", "/v1/systemone", reply)


def test_it_describes_a_path_that_is_not_there(served: Served) -> None:
    reply = asyncio.run(served.send(method="GET", path="/v2/systemone"))
    assert reply.status == 404
    pointer = "/components/responses/NotFound/content/application~1json/schema"
    assert faults(reply.json(), pointer) == []


@pytest.fixture
def served(tmp_path: Path) -> Served:
    return Served(tmp_path)

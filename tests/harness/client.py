"""A plain HTTP client, and what every error of the frontend itself must look like."""

import http.client
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Answer:
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    def header(self, name: str) -> str | None:
        return self.headers.get(name)

    @property
    def content_type(self) -> str:
        return self.headers.get_content_type()


def ask(
    address: str,
    method: str,
    path: str,
    body: object = None,
    *,
    headers: Mapping[str, str] | None = None,
    timeout: float = 60,
) -> Answer:
    """Send one request over its own connection; a body that is not bytes is sent as JSON."""
    payload = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    connection = http.client.HTTPConnection(address, timeout=timeout)
    try:
        all_headers = dict(headers or {})
        if payload is not None:
            all_headers.setdefault("Content-Type", "application/json")
        connection.request(method, path, payload, all_headers)
        response = connection.getresponse()
        return Answer(response.status, response.headers, response.read())
    finally:
        connection.close()


def assert_request_ids(answer: Answer) -> str:
    """Every response names its request, twice the same; the name is returned."""
    request_id = answer.header("x-request-id")
    assert request_id
    assert answer.header("x-typesafe-request-id") == request_id
    return request_id


def assert_own_error(answer: Answer, status: int, error_type: str) -> None:
    """An error of the frontend itself, in the clients' own shape."""
    assert answer.status == status, answer.body
    assert answer.content_type == "application/json"
    detail = answer.json()["detail"]
    assert detail["error_type"] == error_type
    assert isinstance(detail["message"], str)
    assert detail["message"]
    assert detail["request_id"] == assert_request_ids(answer)


def assert_unavailable(answer: Answer) -> None:
    """503 that tells the client when to come back."""
    assert_own_error(answer, 503, "service_unavailable")
    retry_after = answer.header("retry-after")
    assert retry_after is not None
    assert int(retry_after) >= 1

"""Bodies that cannot be answered: the status and shape that clients know, never a 500."""

import http.client
from typing import Any

import pytest

from tests.harness.client import Answer, assert_own_error, assert_request_ids
from tests.harness.decisions import MOOD, REFUND, TEAM, decision
from tests.harness.omni_jev import OmniJev

MAX_REQUEST_BYTES = 8 * 1024 * 1024


def assert_refused(answer: Answer) -> None:
    """422 lists where the request is wrong; any other status says what kind of error it is."""
    assert 400 <= answer.status < 500, (answer.status, answer.body)
    assert answer.content_type == "application/json"
    assert b"Traceback" not in answer.body
    assert_request_ids(answer)
    detail = answer.json()["detail"]
    if answer.status == 422:
        assert detail
        for entry in detail:
            assert entry["loc"][0] == "body"
            assert isinstance(entry["msg"], str)
            assert isinstance(entry["type"], str)
    else:
        assert isinstance(detail["error_type"], str)
        assert isinstance(detail["message"], str)


NOT_EVEN_JSON = {
    "empty": b"",
    "not-json": b"state=please&refund=yes",
    "cut-off": b'{"model":"demo","state":"x","questions":{"a":',
    "not-utf-8": b'{"model":"demo","state":"\xff\xfe","questions":{}}',
    "two-values": b"{} {}",
    "deeply-nested": b"[" * 100_000 + b"]" * 100_000,
    "deeply-nested-state": b'{"questions":{},"state":' + b"[" * 50_000 + b"]" * 50_000 + b"}",
}


@pytest.mark.parametrize("name", NOT_EVEN_JSON)
def test_a_body_that_is_no_json_is_refused(pair: OmniJev, name: str) -> None:
    answer = pair.decide(NOT_EVEN_JSON[name])
    assert answer.status in {400, 422}
    assert_refused(answer)


@pytest.mark.parametrize("body", [[], ["questions"], "questions", 17, True, None])
def test_a_body_that_is_no_object_is_refused(pair: OmniJev, body: object) -> None:
    # None is the JSON null here, which the client would take for no body.
    answer = pair.decide(b"null" if body is None else body)
    assert answer.status in {400, 422}
    assert_refused(answer)


def test_a_body_without_questions_is_a_422_that_says_so(pair: OmniJev) -> None:
    answer = pair.decide({"model": "demo", "state": "x"})
    assert answer.status == 422
    assert_refused(answer)
    assert ["body", "questions"] in [entry["loc"] for entry in answer.json()["detail"]]


@pytest.mark.parametrize("questions", [None, [], "refund", 3, {}])
def test_questions_that_are_no_filled_object_are_a_422(pair: OmniJev, questions: object) -> None:
    answer = pair.decide({"model": "demo", "state": "x", "questions": questions})
    assert answer.status == 422
    assert_refused(answer)


BAD_QUESTIONS: dict[str, Any] = {
    "unknown-type": {"type": "weather", "instructions": "Will it rain?"},
    "box": {"type": "box", "instructions": "Where is it?"},
    "no-type": {"instructions": "Refund?"},
    "type-is-a-list": {**REFUND, "type": ["noul"]},
    "not-an-object": "noul",
    "null": None,
    "choice-without-criteria": {"type": "choice", "instructions": "Who?"},
    "choice-of-numbers": {**TEAM, "criteria": [1, 2]},
    "choice-without-options": {**TEAM, "criteria": {}},
    "score-without-criteria": {"type": "score", "instructions": "How much?"},
    "score-as-object": {**MOOD, "criteria": {"0": "calm", "1": "furious"}},
    "score-without-levels": {**MOOD, "criteria": []},
}


@pytest.mark.parametrize("name", BAD_QUESTIONS)
def test_a_question_that_cannot_be_answered_is_a_422_that_names_it(
    pair: OmniJev, name: str
) -> None:
    answer = pair.decide(decision("x", refund=REFUND, **{"the-bad-one": BAD_QUESTIONS[name]}))
    assert answer.status == 422
    assert_refused(answer)
    assert any("the-bad-one" in entry["loc"] for entry in answer.json()["detail"])


def test_a_body_over_the_workers_limit_is_a_413(pair: OmniJev) -> None:
    answer = pair.decide(decision("x" * (3 * 1024 * 1024)))
    assert answer.status == 413
    assert_refused(answer)


def test_a_body_over_the_frontends_limit_is_a_413_before_it_is_sent(pair: OmniJev) -> None:
    connection = http.client.HTTPConnection(pair.address, timeout=20)
    try:
        connection.putrequest("POST", "/v1/systemone")
        connection.putheader("Content-Type", "application/json")
        connection.putheader("Content-Length", str(MAX_REQUEST_BYTES + 1))
        connection.endheaders()
        # Nothing of the body is sent: the length alone is enough to refuse it.
        response = connection.getresponse()
        answer = Answer(response.status, response.headers, response.read())
    finally:
        connection.close()
    assert_own_error(answer, 413, "invalid_request_error")


def test_an_unknown_path_is_a_404_of_the_worker(pair: OmniJev) -> None:
    answer = pair.ask("GET", "/v1/nothing-here")
    assert answer.status == 404
    assert answer.json() == {"detail": "Not Found"}
    assert_request_ids(answer)


def test_a_good_body_is_answered_right_after_a_bad_one(pair: OmniJev) -> None:
    assert pair.decide(b"[" * 100_000).status in {400, 422}
    assert pair.decide(decision()).status == 200

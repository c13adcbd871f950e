"""The worker's own OpenAPI page, against what the worker answers through the frontend."""

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.specs.openapi.checks import positive_data_acceptance

from tests.harness.omni_jev import ROOT, OmniJev

PAGE = ROOT / "worker-py/src/omni_jev_worker/protocol/openapi.json"
CASES_AN_OPERATION = 40
SECONDS_UNTIL_IT_HANGS = 30

# Which 422 a schema cannot foretell: a comparison of two texts in one object.
BEYOND_SCHEMAS = {"labels_type"}

schema = schemathesis.openapi.from_path(PAGE)


@schema.parametrize()
@settings(
    max_examples=CASES_AN_OPERATION,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
def test_what_the_page_allows_is_answered_and_what_it_does_not_is_refused_as_it_says(
    case: Any, pair: OmniJev
) -> None:
    answer = case.call(base_url=pair.url, timeout=SECONDS_UNTIL_IT_HANGS)
    assert answer.status_code < 500
    excluded = [positive_data_acceptance] if unforeseen(answer) else []
    case.validate_response(answer, excluded_checks=excluded)


def unforeseen(answer: schemathesis.Response) -> bool:
    if answer.status_code != 422:
        return False
    return {fault["type"] for fault in answer.json()["detail"]} <= BEYOND_SCHEMAS


@pytest.fixture(scope="module", autouse=True)
def nothing_is_logged_that_is_worse_than_news(pair: OmniJev) -> Any:
    before = len(pair.process.events)
    yield
    for event in pair.process.events[before:]:
        assert event.fields, f"a line that is no JSON: {event.text}"
        assert event["level"] not in ("WARN", "ERROR"), event.text


def test_the_page_is_served_through_the_frontend(pair: OmniJev) -> None:
    answer = pair.ask("GET", "/openapi.json")
    assert answer.status == 200
    assert answer.content_type == "application/json"
    assert answer.body == PAGE.read_bytes()

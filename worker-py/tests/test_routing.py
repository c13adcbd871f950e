"""Which checkpoint answers: by name, by language, or the default."""

from datetime import date
from pathlib import Path
from typing import Any

import pytest

from omni_jev_worker import checkpoints
from omni_jev_worker.checkpoints import Checkpoint
from omni_jev_worker.model import route
from omni_jev_worker.routing import OFF, Routing


def routing(default: str = "english", **options: Any) -> Routing:
    hub = default in checkpoints.HUB_FOLDERS
    origin = checkpoints.origin_of(default) if hub else default
    checkpoint = Checkpoint(default, origin, None, Path(), date(2026, 1, 31))
    return Routing(checkpoint, by_language=route, **options)


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ("english", "english"),
        ("English", "english"),
        (" MULTI ", "multilingual"),
        ("convaiinnovations/laya-multilingual", "multilingual"),
        ("typed_decisions", "typed-decisions"),
    ],
)
def test_published_names_and_upstreams_other_names_for_them_choose(asked: str, name: str) -> None:
    chosen = routing("demo").by_name(asked)
    assert chosen is not None
    assert (chosen["model"], chosen["repo"]) == (name, checkpoints.origin_of(name))
    assert chosen["reason"] == f"explicit model={asked!r}"


@pytest.mark.parametrize(
    "asked", [None, "", "jev-latest", "laya", "default", "convaiinnovations/laya", "x" * 10**6]
)
def test_other_names_say_nothing(asked: str | None) -> None:
    assert routing().by_name(asked) is None


def test_the_defaults_own_name_its_alias_and_preloaded_ones_choose() -> None:
    made = routing("demo", alias="english", preloaded={"other": "other"})
    for asked, name in (("demo", "demo"), ("english", "demo"), ("other", "other")):
        chosen = made.by_name(asked)
        assert chosen is not None
        assert (chosen["model"], chosen["repo"]) == (name, name)


@pytest.mark.parametrize(
    ("default", "state", "name"),
    [
        ("english", "I was charged twice and I want my money back.", "english"),
        ("english", "कृपया मेरा पैसा वापस करें", "multilingual"),
        (
            "english",
            {"message": "Ich habe die Rechnung nicht bekommen und das ist"},
            "multilingual",
        ),
        ("english", "12345", "english"),
        ("multilingual", "12345", "multilingual"),
        ("multilingual", "I was charged twice and I want my money back.", "english"),
    ],
)
def test_english_and_multilingual_answer_what_laya_routes_to_them(
    default: str, state: Any, name: str
) -> None:
    from laya.router import Router

    made = routing(default)
    assert made.reads_states
    chosen = made.by_state(state)
    assert chosen["model"] == name
    assert chosen == dict(Router(default=default).route(state))


@pytest.mark.parametrize("default", ["demo", "typed-decisions", "folder"])
def test_another_default_answers_every_language(default: str) -> None:
    made = routing(default)
    assert not made.reads_states
    assert made.by_state("कृपया मेरा पैसा वापस करें")["model"] == default


def test_routing_can_be_turned_off() -> None:
    made = routing("english", way=OFF)
    assert not made.reads_states
    assert made.by_state("कृपया मेरा पैसा वापस करें")["model"] == "english"

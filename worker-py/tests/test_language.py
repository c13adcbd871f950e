"""The short way of language routing finds what laya's own finds."""

import sys
from importlib.metadata import version
from typing import Any

import laya.router
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from omni_jev_worker import language, model
from omni_jev_worker.versions import TESTED

pytestmark = pytest.mark.skipif(
    version("laya") != TESTED["laya"], reason="another laya routes by itself"
)

LANG: Any = sys.modules["laya.lang"]
KNOWN = sorted({word for words in LANG._STOP.values() for word in words})
words = st.sampled_from([*KNOWN, "refund", "charge", "Zahlung", "a.b", "x@y.de", "U.S.A.", "v1.2"])
sentences = st.lists(words, max_size=14).map(" ".join)
# Most words of one language, so that names are given.
of_one = st.sampled_from(sorted(LANG._STOP)).flatmap(
    lambda name: st.lists(st.sampled_from(sorted(LANG._STOP[name])), max_size=9).map(" ".join)
)
texts = st.one_of(
    sentences,
    of_one,
    st.text(max_size=60),
    st.text(alphabet="aeT. @_-1\n,'", max_size=60),
    sentences.map(str.upper),
    sentences.map(lambda text: text.replace(" ", ". ")),
)
states = st.recursive(
    texts | st.none() | st.integers(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)


# Each example has several texts, of which every one is looked at by itself.
@settings(max_examples=1000, deadline=None)
@given(state=states)
@example(state="please refund the charge " * 400)
@example(state="la un e o da la un e")
@example(state="12 34 .. @@")
def test_what_is_found_is_what_laya_finds(state: Any) -> None:
    assert repr(language.analysis_of(LANG)(state)) == repr(LANG.analyse(state))


@settings(max_examples=300, deadline=None)
@given(state=states, default=st.sampled_from(["english", "multilingual"]))
def test_a_state_is_routed_as_laya_routes_it(state: Any, default: str) -> None:
    expected = laya.router.Router(default=default).route(state)
    assert repr(model.route(state, default)) == repr(dict(expected))


def test_layas_own_router_is_left_alone() -> None:
    assert model._ROUTER is not laya.router.Router
    assert laya.router.analyse is LANG.analyse

"""200 short texts in 20 languages, each to the checkpoint and by the rule that laya has for it."""

from collections import Counter
from collections.abc import Iterator
from datetime import date
from importlib.metadata import version
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import pytest

from omni_jev_worker import checkpoints
from omni_jev_worker.checkpoints import Checkpoint
from omni_jev_worker.model import route
from omni_jev_worker.routing import Routing, headers_of, language_reason
from omni_jev_worker.versions import TESTED

pytestmark = pytest.mark.skipif(
    version("laya") != TESTED["laya"], reason="another laya has another rule"
)

HERE = Path(__file__).parent
README = HERE.parent / "README.md"


class Text(NamedTuple):
    language: str
    checkpoint: str
    reason: str
    text: str

    @property
    def is_right(self) -> bool:
        """Whether the checkpoint is the one that reads the text's true language."""
        return (self.checkpoint == "english") == (self.language == "en")


def texts() -> Iterator[Text]:
    for line in (HERE / "languages.tsv").read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            yield Text(*line.split("\t"))


TEXTS = list(texts())
LANGUAGES = {name: list(found) for name, found in groupby(TEXTS, key=lambda text: text.language)}


def routing(default: str = "english") -> Routing:
    origin = checkpoints.origin_of(default)
    checkpoint = Checkpoint(default, origin, None, Path(), date(2026, 1, 31))
    return Routing(checkpoint, by_language=route)


def test_there_are_ten_texts_in_each_of_twenty_languages() -> None:
    assert len(TEXTS) == len({text.text for text in TEXTS}) == 200
    assert set(Counter(text.language for text in TEXTS).values()) == {10}
    assert len(LANGUAGES) == 20
    assert max(len(text.text) for text in TEXTS) < 70


@pytest.mark.parametrize("language", LANGUAGES)
def test_each_text_goes_where_layas_rule_sends_it_and_the_rule_is_named(language: str) -> None:
    chooses = routing()
    for text in LANGUAGES[language]:
        # Keys are no text of a state: they are mostly English.
        for state in (text.text, {"message": text.text}, [{"content": text.text}]):
            found = chooses.by_state(state)
            assert (found["model"], language_reason(found)) == (text.checkpoint, text.reason), text


def test_an_undecided_text_goes_to_the_default_whichever_that_is() -> None:
    chooses = routing("multilingual")
    undecided = [text for text in TEXTS if text.reason == "language_undecided_default"]
    assert len(undecided) > 20
    for text in undecided:
        found = chooses.by_state(text.text)
        assert (found["model"], language_reason(found)) == ("multilingual", text.reason)


def test_a_state_without_letters_has_a_reason_of_its_own() -> None:
    for state in ("12345", "", {}, {"number": 48213}):
        found = routing().by_state(state)
        assert (found["model"], language_reason(found)) == ("english", "no_text_default")


def test_a_checkpoint_that_was_named_has_no_reason_of_language() -> None:
    named = routing().by_name("multilingual")
    assert named is not None
    assert headers_of(named) == []


def test_the_page_has_how_many_of_each_language_go_to_the_checkpoint_that_reads_it() -> None:
    counted = {
        language: sum(text.is_right for text in found) for language, found in LANGUAGES.items()
    }
    page = README.read_text(encoding="utf-8")
    for language, right in counted.items():
        assert f"| {language} {right} " in page, (language, right)
    assert f"{sum(counted.values())} of 200" in page

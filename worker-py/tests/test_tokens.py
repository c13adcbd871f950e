"""The short way to token numbers gives what the tokenizer's own call gives."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omni_jev_worker import checkpoints
from omni_jev_worker.model import Model
from omni_jev_worker.tokens import reading_of

DEMO = Path(__file__).resolve().parents[2] / "recipe" / "demo" / "checkpoint"
texts = st.lists(
    st.text(max_size=40)
    | st.text(alphabet="ab .\n\t'[MASK][SEP]é😡", max_size=200)
    | st.sampled_from(["", " ", "Please refund the charge. " * 300, "[CLS]a[PAD]", "\u0130\ufb01"]),
    min_size=1,
    max_size=4,
)


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return Model(checkpoints.from_folder(str(DEMO)), "cpu")._agent.tok


def called(tokenizer: Any, texts: list[str]) -> Any:
    return tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]


@settings(max_examples=500, deadline=None)
@given(texts=texts)
def test_the_numbers_are_those_of_the_tokenizer(tokenizer: Any, texts: list[str]) -> None:
    assert reading_of(tokenizer)(texts) == called(tokenizer, texts)


def test_what_others_have_set_on_the_tokenizer_cuts_and_pads_nothing(tokenizer: Any) -> None:
    read = reading_of(tokenizer)
    long = ["Please refund the charge. " * 30, "no"]
    whole = called(tokenizer, long)
    tokenizer(long, truncation=True, max_length=4, padding="max_length")
    assert read(long) == whole
    assert len(whole[0]) > 100


def test_a_tokenizer_without_a_backend_is_called_itself() -> None:
    def tokenizer(texts: list[str], **how: Any) -> Any:
        assert how == {"add_special_tokens": False, "verbose": False}
        return {"input_ids": [[len(text)] for text in texts]}

    assert reading_of(tokenizer)(["a", "bcd"]) == [[1], [3]]

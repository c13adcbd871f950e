"""A memory of words gives what the tokenizer gives, and asks it for what is new alone."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
)

from omni_jev_worker import words
from omni_jev_worker.words import Words, remembering

DEMO = Path(__file__).resolve().parents[2] / "recipe" / "demo" / "checkpoint"
CORPUS = [
    "The order hasn't arrived; they'll refund 1,250.00 (or we'd cancel it).",
    "  a\tb\n\nc  'quoted' I'm it's you've we're x_y a@b.c 2026-11-30",
]


def demo() -> Tokenizer:
    return Tokenizer.from_file(str(DEMO / "tokenizer" / "tokenizer.json"))


def byte_level() -> Tokenizer:
    """One as ModernBERT's: GPT-2's rule, NFC, tokens of several spaces."""
    made = Tokenizer(models.BPE())
    made.normalizer = normalizers.NFC()
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, initial_alphabet=alphabet, special_tokens=["[UNK]", "[CLS]"]
    )
    made.train_from_iterator(CORPUS, trainer)
    made.add_special_tokens([AddedToken("[MASK]", lstrip=True)])
    made.add_tokens([AddedToken(" " * n, normalized=True) for n in range(24, 1, -1)])
    made.add_tokens([AddedToken("|||EMAIL|||")])
    return made


def reading(tokenizer: Tokenizer) -> words.Tokenize:
    def tokenize(texts: list[str]) -> list[list[int]]:
        encoded = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        return [each.ids for each in encoded]

    return tokenize


class Counted:
    """A tokenizer that counts what it is asked for."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenize = reading(tokenizer)
        self.asked: list[list[str]] = []

    def __call__(self, texts: list[str]) -> list[list[int]]:
        self.asked.append(list(texts))
        return self._tokenize(texts)


def remembered(tokenizer: Tokenizer) -> tuple[Words, Counted]:
    counted = Counted(tokenizer)
    made = remembering(tokenizer, counted)
    assert isinstance(made, Words)
    counted.asked.clear()
    return made, counted


def small() -> Tokenizer:
    made = byte_level()
    made.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    return made


KNOWN = {"bert": demo(), "gpt2": byte_level(), "gpt2, made small": small()}
MEMORIES = {name: remembered(tokenizer)[0] for name, tokenizer in KNOWN.items()}

ascii_texts = st.text(st.characters(max_codepoint=127), max_size=60)
likely_texts = st.lists(
    st.sampled_from(
        [*"aZ09 \t\n\r\x0b\x0c\x1c\x1f\x7f\x00'_-.[]|/", "  ", "'s", "'LL", "'re", " refund",
         "'D", "'rE", "[MASK]", "[unk]", "|||email|||", "é", "\u00a0", "\u2028", "don't",
         "order 12345", "x" * 60]
    ),
    max_size=40,
).map("".join)  # fmt: skip


@pytest.mark.parametrize("name", KNOWN)
@settings(max_examples=700, deadline=None)
@given(texts=st.lists(ascii_texts | likely_texts | st.text(max_size=30), max_size=3))
def test_a_texts_numbers_are_the_tokenizers_own(name: str, texts: list[str]) -> None:
    expected = reading(KNOWN[name])(texts)
    # Over all these texts much is known, at the second time everything is.
    assert MEMORIES[name](texts) == expected
    assert MEMORIES[name](texts) == expected


@pytest.mark.parametrize("name", KNOWN)
def test_each_pair_of_ascii_characters_is_read_as_the_tokenizer_reads_it(name: str) -> None:
    pairs = [f"a{chr(x)}{chr(y)}b" for x in range(128) for y in range(128)]
    assert MEMORIES[name](pairs) == reading(KNOWN[name])(pairs)


def test_the_tokenizer_is_asked_for_new_words_alone() -> None:
    memory, counted = remembered(demo())
    memory(["please refund the order now or I will cancel it"])
    memory(["please refund the order now or I will cancel it"])
    counted.asked.clear()
    memory(["please cancel the order now or I will return it"])
    assert counted.asked == [[" return"]]


def test_a_text_of_new_words_is_read_as_a_whole_and_some_of_them_are_learned() -> None:
    memory, counted = remembered(demo())
    text = " ".join(f"n{n}" for n in range(100))
    memory([text])
    learned, whole = counted.asked
    assert len(learned) == 16
    assert whole == [text]
    for _ in range(8):
        memory([text])
    counted.asked.clear()
    memory([text])
    assert counted.asked == []


def test_what_is_remembered_has_a_bound_and_what_is_asked_for_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(words, "_KEPT", 64)
    memory, counted = remembered(demo())
    often = "please refund the order now or I will cancel it"
    for number in range(400):
        text = f"{often} today w{number}"
        assert memory([text]) == reading(demo())([text])
    assert len(memory._known) + len(memory._older) <= 2 * (64 + 16)
    counted.asked.clear()
    memory([often])
    assert counted.asked == []


def test_a_long_word_is_read_and_not_kept() -> None:
    memory, counted = remembered(demo())
    text = f"please refund the order now or I will cancel {'x' * 5000}"
    memory([text])
    counted.asked.clear()
    assert memory([text]) == reading(demo())([text])
    assert counted.asked == [[" " + "x" * 5000]]


@pytest.mark.parametrize(
    "change",
    [
        lambda made: setattr(made, "normalizer", normalizers.Replace("a", "b")),
        lambda made: setattr(made, "pre_tokenizer", pre_tokenizers.Metaspace()),
        lambda made: setattr(
            made, "pre_tokenizer", pre_tokenizers.ByteLevel(add_prefix_space=True)
        ),
        lambda made: setattr(made, "model", models.WordPiece({"[UNK]": 0})),
    ],
    ids=["another normalizer", "another cut", "a space put before", "another model"],
)
def test_a_tokenizer_of_other_rules_is_left_as_it_is(change: Any) -> None:
    made = byte_level()
    change(made)
    tokenize = reading(made)
    assert remembering(made, tokenize) is tokenize


def test_one_that_reads_otherwise_than_its_rules_say_is_left_as_it_is() -> None:
    tokenizer = demo()

    def other(texts: list[str]) -> list[list[int]]:
        # What a text gives depends on more than its words.
        return [
            [len(text), *each] for text, each in zip(texts, reading(tokenizer)(texts), strict=True)
        ]

    assert remembering(tokenizer, other) is other

"""Rows are laya's own, token for token; what was cut is counted; what laya refuses is dealt out."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tiny_checkpoint
from omni_jev_worker import checkpoints
from omni_jev_worker.model import Model
from omni_jev_worker.rows import RowBuilder, Specials, Text

SPECIALS = Specials(cls=1, sep=2, mask=3, mask_text="[MASK]")


def words(texts: list[str]) -> list[list[int]]:
    """A tokenizer of one token a word, of a number past the special ones."""
    return [[10 + len(word) for word in text.split()] for text in texts]


def builder(window: int = 64, head: int = 32) -> RowBuilder:
    return RowBuilder(words, SPECIALS, window=window, head=head)


def text(count: int) -> str:
    return " ".join(["word"] * count)


@pytest.fixture(scope="module", params=[(128, 64), (32, 16), (64, 64), (512, 192), (48, 192)])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Model:
    window, head = request.param
    folder = tmp_path_factory.mktemp("rows") / "tiny"
    tiny_checkpoint.make(folder, window=window, head_max_len=head)
    return Model(checkpoints.from_folder(str(folder)), "cpu")


some_words = st.lists(
    st.sampled_from([*tiny_checkpoint.WORDS.split(), "[MASK]", "[SEP]", "환불", "😡", "zz-zz"]),
    max_size=90,
).map(" ".join)
questions = st.one_of(
    st.fixed_dictionaries({"type": st.just("noul"), "instructions": some_words}),
    st.fixed_dictionaries(
        {
            "type": st.just("choice"),
            "instructions": some_words,
            "criteria": st.dictionaries(some_words, some_words, min_size=1, max_size=70),
        }
    ),
)


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(state=st.one_of(some_words, st.lists(some_words, max_size=4)), question=questions)
def test_what_laya_takes_in_one_row_is_the_same_row_here(
    model: Model, state: Any, question: dict[str, Any]
) -> None:
    encoded = model.encode(state, {"q": question})
    try:
        expected = model._agent._encode_state(state, ["q"], encoded.internal)
    except ValueError:
        assert encoded.groups[0] > 1
    else:
        # A later laya notes more with a row, which its model is not given.
        parts = ("ids", "markers", "qtype")
        assert encoded.items == [{part: row[part] for part in parts} for row in expected]
        assert encoded.groups == (1,)
    assert all(len(item["ids"]) <= model.window for item in encoded.items)
    assert len(encoded.items) <= model.most_rows({"q": question})


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(state=some_words, question=questions)
def test_cut_tokens_and_kept_ones_are_all_there_is(
    model: Model, state: str, question: dict[str, Any]
) -> None:
    from laya.common import render_options

    tokenizer = model._agent.tok
    encoded = model.encode(state, {"q": question})
    if encoded.groups != (1,):
        return
    form = encoded.internal["q"]
    texts = [
        state,
        f"{form['t']} question: {form['ins']}",
        *(f" {option}" for option in render_options(form)),
    ]
    clean = [text.replace("[MASK]", " ") for text in texts]
    whole = sum(map(len, tokenizer(clean, add_special_tokens=False)["input_ids"]))
    whole += len(render_options(form)) + 4  # a mask before each option, and [CLS] [SEP] [SEP] [SEP]
    lost = encoded.lost[0]
    kept = len(encoded.items[0]["ids"])
    # A row whose head fills the window ends without its last one or two separators, which are no
    # loss.
    assert 0 <= whole - (kept + lost.state + lost.options + lost.instructions) <= 2
    assert bool(lost) or kept in (whole, model.window)


@pytest.mark.parametrize(
    ("state", "instructions", "options", "lost"),
    [
        (10, 4, [1, 1], (0, 0, 0)),
        # 64 less [CLS], three [SEP], "choice question:" and 4 words, two options of a mask and a
        # word leave 50.
        (50, 4, [1, 1], (0, 0, 0)),
        (51, 4, [1, 1], (1, 0, 0)),
        # The head has 32: the options take 4, the instructions with their two words 28.
        (0, 26, [1, 1], (0, 0, 0)),
        (0, 27, [1, 1], (0, 0, 1)),
        # Options of 50 keep 48 and a mask, then 8 each of the 16 that the head leaves them.
        (0, 4, [50, 1], (0, 43, 0)),
    ],
)
def test_lost_tokens_are_counted_exactly(
    state: int, instructions: int, options: list[int], lost: tuple[int, int, int]
) -> None:
    rows = builder()
    question = Text("choice", text(instructions), [text(count) for count in options])
    _, cut = rows.rows(question, rows.state(text(state)), newest_last=False)
    assert (cut.state, cut.options, cut.instructions) == lost
    assert bool(cut) == any(lost)


def test_a_list_keeps_its_end_and_a_text_its_start() -> None:
    rows = builder(window=32, head=16)
    state = rows.state("a " * 40 + "bb")
    question = Text("noul", "x", ["a", "b"])
    (first,), _ = rows.rows(question, state, newest_last=False)
    (last,), _ = rows.rows(question, state, newest_last=True)
    assert 12 not in first.ids
    assert last.ids[-2] == 12


def test_options_that_do_not_fit_one_row_are_dealt_out_in_order_and_evenly() -> None:
    rows = builder(window=128, head=64)
    options = [f"{'x' * n}" for n in range(1, 256)]
    laid, cut = rows.rows(
        Text("choice", "which", options), rows.state("the state"), newest_last=False
    )
    assert not cut
    sizes = [len(row.markers) for row in laid]
    assert sum(sizes) == 255
    assert max(sizes) - min(sizes) <= 1
    shown = [row.ids[marker + 1] - 10 for row in laid for marker in row.markers]
    assert shown == list(range(1, 256))
    assert len(laid) <= rows.most_rows(255)


def test_options_keep_their_words_where_that_takes_no_more_than_groups_of_sixteen() -> None:
    rows = builder(window=128, head=64)
    short, cut = rows.rows(Text("choice", "w", ["a b"] * 60), [], newest_last=False)
    # Three tokens an option, 48 for options: 16 a row.
    assert (len(short), bool(cut)) == (4, False)
    long, cut = rows.rows(Text("choice", "w", ["a b c d e f"] * 160), [], newest_last=False)
    assert (len(long), cut.options) == (10, 160 * 3)


def test_a_text_is_tokenized_once_for_many_states() -> None:
    asked: list[str] = []

    def counting(texts: list[str]) -> list[list[int]]:
        asked.extend(texts)
        return words(texts)

    rows = RowBuilder(counting, SPECIALS, window=64, head=32)
    question = Text("choice", "which", ["a", "b", "a"])
    results = [rows.rows(question, rows.state(f"state {n}"), newest_last=False) for n in range(5)]
    assert len(asked) == 3 + 5
    assert len({str(row[0].ids[: row[0].markers[-1]]) for row, _ in results}) == 1


def test_a_question_that_comes_again_is_neither_laid_out_again_nor_changed_by_its_states() -> None:
    read: list[str] = []

    def counting(texts: list[str]) -> list[list[int]]:
        read.extend(texts)
        return words(texts)

    build = RowBuilder(counting, SPECIALS, window=24, head=16)
    again = Text("choice", "which one", ["a b", "c"])
    first = build.rows(again, [7] * 3, newest_last=False)
    seen = len(read)
    long = build.rows(again, [8] * 90, newest_last=True)
    assert build.rows(again, [7] * 3, newest_last=False) == first
    assert len(read) == seen
    assert long == builder(24, 16).rows(again, [8] * 90, newest_last=True)
    # Where one word ends and the next begins tells two questions apart.
    other = Text("choice", "which one", ["a", "b c"])
    assert build.rows(other, [7] * 3, newest_last=False) != first


def test_questions_are_forgotten_past_a_bound_and_long_ones_are_not_kept() -> None:
    build = builder()
    for number in range(2000):
        build.rows(Text("noul", f"{number}", ["no", "yes"]), [], newest_last=False)
    known = len(build._known)
    assert known < 1000
    build.rows(Text("noul", "x" * 5000, ["no", "yes"]), [], newest_last=False)
    assert len(build._known) == known

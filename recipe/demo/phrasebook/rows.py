"""Items to rows of tokens, with Laya's own functions, so that training sees what serving sees."""

from __future__ import annotations

import random
from typing import Any, TypedDict

from laya.agent import Agent
from laya.common import QTYPES, build_sequence, render_options, serialize_state
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.normalizers import NFKC, Lowercase
from tokenizers.normalizers import Sequence as Normalizers
from tokenizers.pre_tokenizers import BertPreTokenizer, ByteLevel, Digits
from tokenizers.pre_tokenizers import Sequence as PreTokenizers
from tokenizers.trainers import BpeTrainer
from transformers import PreTrainedTokenizerFast

from .bank import Bank
from .item import Item
from .mix import make_item

MAX_LEN = 512
HEAD_MAX_LEN = 192
_SPECIAL = {
    "pad_token": "[PAD]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "mask_token": "[MASK]",
    "unk_token": "[UNK]",
}


class Row(TypedDict):
    """What laya.common.collate_items takes."""

    ids: list[int]
    markers: list[int]
    qtype: int
    label: int


def texts_of(item: Item) -> list[str]:
    """All texts of an item, as the tokenizer will see them."""
    internal = Agent._to_internal(item.question)
    head = f"{internal['t']} question: {internal['ins']}"
    return [head, *render_options(internal), serialize_state(item.state)]


def train_tokenizer(bank: Bank, items: int, size: int, seed: int) -> PreTrainedTokenizerFast:
    """A lower-casing byte-level BPE of ``size`` entries: any text has tokens, none is unknown.

    Words are cut at spaces and punctuation first, so that a word has the same tokens at the start
    of a text, inside quotes and in late_delivery.
    """
    rng = random.Random(seed)
    corpus = [text for _ in range(items) for text in texts_of(make_item(bank, rng))]
    tokenizer = Tokenizer(BPE())
    tokenizer.normalizer = Normalizers([NFKC(), Lowercase()])
    tokenizer.pre_tokenizer = PreTokenizers(
        [
            BertPreTokenizer(),
            Digits(individual_digits=True),
            ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = ByteLevelDecoder()
    trainer = BpeTrainer(
        vocab_size=size,
        show_progress=False,
        special_tokens=list(_SPECIAL.values()),
        initial_alphabet=ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(corpus, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        **_SPECIAL,
        # Laya cuts the rows itself; a limit here would only make it warn.
        model_max_length=1_000_000,
    )


class QuickTokenizer:
    """The same tokens as ``tokenizer`` gives to laya.common.build_sequence, several times faster.

    With ``dropout``, words are cut into random smaller pieces, each time differently: training
    with such rows gives meaning to the pieces of words that it never shows whole.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerFast, dropout: float = 0.0) -> None:
        self.mask_token = str(tokenizer.mask_token)
        self.mask_token_id = int(tokenizer.mask_token_id)
        self.cls_token_id = int(tokenizer.cls_token_id)
        self.sep_token_id = int(tokenizer.sep_token_id)
        self._backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
        # A tokenizer that has served keeps the last call's truncation.
        self._backend.no_truncation()
        self._dropout = dropout
        if dropout:
            self._backend.model.dropout = dropout
        self._known: dict[str, list[int]] = {}

    def __call__(
        self,
        text: str,
        *,
        add_special_tokens: bool = True,
        truncation: bool = False,
        max_length: int | None = None,
    ) -> dict[str, list[int]]:
        """What a transformers tokenizer returns, as far as build_sequence looks."""
        if add_special_tokens:
            raise ValueError("rows place their special tokens themselves")
        ids = self._known.get(text)
        if ids is None:
            ids = self._backend.encode(text, add_special_tokens=False).ids
            if not self._dropout and len(text) < 80 and len(self._known) < 200_000:
                self._known[text] = ids
        return {"input_ids": ids[:max_length] if truncation else ids}


def make_row(tokenizer: PreTrainedTokenizerFast | QuickTokenizer, item: Item) -> Row | None:
    """The row that laya.Agent builds for the item, or None where it would cut the item short."""
    Agent._check_question("q", item.question)
    internal: dict[str, Any] = Agent._to_internal(item.question)
    ids, markers = build_sequence(
        tokenizer,
        item.state,
        internal,
        MAX_LEN,
        HEAD_MAX_LEN,
        truncate_left=isinstance(item.state, list),
    )
    if len(ids) >= MAX_LEN or len(markers) <= item.label:
        return None
    return {"ids": ids, "markers": markers, "qtype": QTYPES[internal["t"]], "label": item.label}

"""What a checkpoint's tokenizer must have, and the rows that are laid out by it."""

from typing import Any

from omni_jev_worker.exits import bad_configuration
from omni_jev_worker.rows import RowBuilder, Specials
from omni_jev_worker.tokens import around, reading_of


def row_builder(agent: Any) -> RowBuilder:
    """Give what lays rows out for a laya agent."""
    tokenizer = agent.tok
    specials = Specials(
        tokenizer.cls_token_id,
        tokenizer.sep_token_id,
        tokenizer.mask_token_id,
        tokenizer.mask_token,
        around(tokenizer),
    )
    return RowBuilder(
        reading_of(tokenizer),
        specials,
        window=int(agent.cfg.get("max_len", 512)),
        head=int(agent.cfg.get("head_max_len", 192)),
        keep_ends=tokenizer.truncation_side == "left",
    )


def check_tokenizer(agent: Any, checkpoint: str) -> None:
    """Check what a row is made of: laya's special tokens, and ids that the weights know.

    An id past the embedding is an error in the middle of a request, and on a GPU one after which
    the process cannot use it any more.
    """
    tokenizer = agent.tok
    used = []
    for name in ("cls_token", "sep_token", "mask_token", "pad_token"):
        number = getattr(tokenizer, f"{name}_id")
        if number is None:
            raise bad_configuration(
                f"checkpoint {checkpoint}: tokenizer/tokenizer_config.json names no `{name}`"
            )
        used.append(number)
    # Tokens added to the vocabulary may be there for other models, and mean nothing to this one.
    added = tokenizer.get_added_vocab()
    used.extend(number for text, number in tokenizer.get_vocab().items() if text not in added)
    known = agent.model.encoder.get_input_embeddings().num_embeddings
    if max(used) >= known:
        raise bad_configuration(
            f"checkpoint {checkpoint}: the tokenizer has a token number {max(used)}, "
            f"but the weights know {known} tokens"
        )

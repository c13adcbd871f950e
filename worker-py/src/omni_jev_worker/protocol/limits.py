"""How much of anything one request may hold.

The numbers for body, state and questions are upstream's. The others bound every text before the
tokenizer sees it: a 7.9 MB instruction takes 7 s to tokenize, of which 192 tokens would be read.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds; a request past one is answered 413, past `options` or `depth` 422."""

    body_bytes: int = 2 * 1024 * 1024
    """The body, as sent and after decoding."""
    state_characters: int = 50_000
    """The state; as JSON text where it is no string."""
    questions: int = 64
    states: int = 64
    """States of a batch."""
    id_characters: int = 512
    text_characters: int = 8_000
    """One instruction or one criterion."""
    question_characters: int = 256_000
    """All instructions, option names and criteria of a request together."""
    options: int = 255
    """Options of a choice, levels of a score."""
    depth: int = 100
    """How deep arrays and objects may nest."""
    values: int = 30_000
    """Values in a body, so that parsing and checking it take less than 50 ms of a processor."""

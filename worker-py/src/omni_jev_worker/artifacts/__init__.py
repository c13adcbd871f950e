"""What is made of a checkpoint for an engine, kept from one start to the next.

An artifact is a folder: the files that its engine wrote, and a manifest that says what of and by
what they were made, their hash, and where they were proved.
"""

from typing import Final

WORD: Final = "artifacts"
"""The word before the flags of `command`."""

WITH_A_MODEL: Final = ("build", "warm")
"""What of it needs a checkpoint, and is done by a start that ends before it serves."""

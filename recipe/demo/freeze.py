"""Writes heldout.jsonl: items made of wordings that training and validation never see.

    python recipe/demo/freeze.py

The file is frozen: run this again only when the wordings in bank/ change, and then retrain. Those
in more_*.txt, wide_*.txt and lexicon*.txt are for training only and change nothing here.
"""

from __future__ import annotations

import random
from collections import Counter

from phrasebook.bank import Bank
from phrasebook.frozen import HELDOUT, to_line
from phrasebook.mix import make_item

QUOTAS = {"noul": 260, "choice": 220, "score": 140}
SEED = 20
# Rows over this many characters would be cut by the model's window, and with them the answer.
LONGEST = 1500


def main() -> None:
    """Draws until each question type has its number of items."""
    bank = Bank("heldout")
    rng = random.Random(SEED)
    counts: Counter[str] = Counter()
    lines: dict[str, None] = {}
    while sum(counts.values()) < sum(QUOTAS.values()):
        item = make_item(bank, rng)
        line = to_line(item)
        if counts[item.kind] == QUOTAS[item.kind] or line in lines or len(line) > LONGEST:
            continue
        counts[item.kind] += 1
        lines[line] = None
    HELDOUT.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    print(f"{HELDOUT.name}: {dict(counts)}")


if __name__ == "__main__":
    main()

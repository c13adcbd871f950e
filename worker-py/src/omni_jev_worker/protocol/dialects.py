"""The dialects: whose answers a body imitates, and whose requests are taken."""

from typing import Final

LAYA: Final = "laya"
"""Upstream's fields and numbers, and what upstream takes."""

JEV: Final = "jev"
"""The hosted protocol to the letter: Jev's confidence, all else under ``x_``, strict checks."""

DIALECTS: Final = (LAYA, JEV)

"""Draw a picture of boxes and arrows as SVG from a TOML text, the same bytes each time.

    python docs/picture.py docs/architecture.toml docs/architecture.svg

The text has `size = [width, height]`, boxes and arrows. A `[[box]]` has `name`, `title`,
`at = [left, top, width, height]`, and may have `lines`, or `holds = true` where others lie in it.
An `[[arrow]]` goes `from` a box `to` another, straight between the sides that face each other, and
may have a `label` and `both = true`.
"""

from __future__ import annotations

import sys
import tomllib
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

_STYLE = """\
text { font: 13px system-ui, sans-serif; fill: #1a1a2e; text-anchor: middle; }
.title { font-weight: 600; }
.label { font-size: 12px; fill: #44446a; }
.holds { fill: #f4f6fb; stroke: #9aa5c4; }
.box { fill: #ffffff; stroke: #3f51b5; }
line { stroke: #3f51b5; stroke-width: 1.5; }
#tip path { fill: #3f51b5; }"""
_LINE = 17


@dataclass(frozen=True)
class Box:
    """A rectangle, in pixels, and what it says."""

    left: int
    top: int
    width: int
    height: int
    title: str
    lines: tuple[str, ...]
    holds: bool

    @property
    def middle(self) -> tuple[float, float]:
        """The point that arrows aim at."""
        return self.left + self.width / 2, self.top + self.height / 2


def draw(text: str) -> str:
    """Make the SVG of a picture's text.

    Raises:
        KeyError: A box or an arrow lacks something, or an arrow names a box that is not there.
    """
    picture = tomllib.loads(text)
    width, height = picture["size"]
    boxes = {one["name"]: _read(one) for one in picture["box"]}
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img">',
        f"<style>\n{_STYLE}\n</style>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto-start-reverse"><path d="M0 0L8 4L0 8z"/></marker></defs>',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    parts += [line for box in boxes.values() for line in _box(box)]
    parts += [line for arrow in picture["arrow"] for line in _arrow(arrow, boxes)]
    return "\n".join([*parts, "</svg>"]) + "\n"


def _read(one: dict[str, Any]) -> Box:
    left, top, width, height = one["at"]
    lines = tuple(one.get("lines", ()))
    return Box(left, top, width, height, one["title"], lines, one.get("holds", False))


def _box(box: Box) -> list[str]:
    kind = "holds" if box.holds else "box"
    drawn = [
        f'<rect class="{kind}" x="{box.left}" y="{box.top}" width="{box.width}" '
        f'height="{box.height}" rx="8"/>'
    ]
    x, y = box.middle
    # The text of one that holds others is at its top, else in the middle of its height.
    first = box.top + 28 if box.holds else y - _LINE * len(box.lines) / 2 + 5
    for number, line in enumerate([box.title, *box.lines]):
        kind = "title" if number == 0 else "label"
        drawn.append(_text(kind, x, first + _LINE * number, line))
    return drawn


def _arrow(arrow: dict[str, Any], boxes: dict[str, Box]) -> list[str]:
    one, other = boxes[arrow["from"]], boxes[arrow["to"]]
    (x1, y1), (x2, y2) = one.middle, other.middle
    beside = one.left + one.width <= other.left or other.left + other.width <= one.left
    if beside:
        right = x2 > x1
        x1 = one.left + one.width if right else one.left
        x2 = other.left if right else other.left + other.width
    else:
        down = y2 > y1
        x2 = x1
        y1 = one.top + one.height if down else one.top
        y2 = other.top if down else other.top + other.height
    start = ' marker-start="url(#tip)"' if arrow.get("both") else ""
    drawn = [
        f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}"{start} marker-end="url(#tip)"/>'
    ]
    if "label" in arrow:
        x, y = (x1 + x2) / 2, (y1 + y2) / 2
        label = _text("label", x, y - 8, arrow["label"])
        if not beside:
            label = _text('label" style="text-anchor: end', x - 8, y + 4, arrow["label"])
        drawn.append(label)
    return drawn


def _text(kind: str, x: float, y: float, text: str) -> str:
    return f'<text class="{kind}" x="{x:g}" y="{y:g}">{escape(text)}</text>'


def main() -> int:
    """Draw the picture of the first argument's file into the second's."""
    source, target = map(Path, sys.argv[1:3])
    target.write_text(draw(source.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main())

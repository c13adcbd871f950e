"""What a round says, and the table of bars."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.lanes.lane_load import Answered
from benchmarks.percentiles import percentile

LATE_S: Final = 0.1
TOLERANCE: Final = 0.02
"""How far two probabilities of the same may lie apart: the parity gate's own."""


@dataclass(frozen=True)
class Round:
    """The figures of one round of arrivals."""

    asked: int
    errors: int
    shorts: int
    late: int
    p50_ms: float
    p99_ms: float
    lanes: dict[str, int]
    reasons: dict[str, int]

    @property
    def late_share(self) -> float:
        """Late short requests, of all short ones; those without an answer are late."""
        return self.late / max(1, self.shorts)


def figures(answered: Sequence[Answered]) -> Round:
    """Work out a round's figures. Times of short requests, from the moment they were due."""
    shorts = [each for each in answered if each.kind == "short"]
    times = [each.late_by for each in shorts if each.status == 200]
    return Round(
        asked=len(answered),
        errors=sum(each.status != 200 for each in answered),
        shorts=len(shorts),
        late=sum(each.status != 200 or each.late_by > LATE_S for each in shorts),
        p50_ms=percentile(times, 0.5) * 1000 if times else float("nan"),
        p99_ms=percentile(times, 0.99) * 1000 if times else float("nan"),
        lanes=dict(Counter(each.lane for each in answered)),
        reasons=dict(Counter(each.reason for each in answered)),
    )


def differing(one: Sequence[Answered], other: Sequence[Answered]) -> tuple[int, int]:
    """Give how many requests both rounds answered, and of how many the answers differ."""
    return len(_both(one, other)), len(unlike(one, other))


def near_ties(one: Sequence[Answered], other: Sequence[Answered]) -> int:
    """Count the answered requests with another option chosen, whose numbers do not differ."""
    return sum(
        not _differ(first.answers, second.answers)
        and _choices(first.answers) != _choices(second.answers)
        for first, second in _both(one, other)
    )


def unlike(one: Sequence[Answered], other: Sequence[Answered]) -> list[dict[str, Any]]:
    """Give, for the raw results, what differs: who answered each time, and what."""
    return [
        {
            "number": second.number,
            "kind": second.kind,
            "done": [first.done, second.done],
            "lanes": [first.lane, second.lane],
            "reason": second.reason,
            "answers": [first.answers, second.answers],
        }
        for first, second in _both(one, other)
        if _differ(first.answers, second.answers)
    ]


def _both(one: Sequence[Answered], other: Sequence[Answered]) -> list[tuple[Answered, Answered]]:
    """Pair what both rounds answered."""
    first = {each.number: each for each in one if each.status == 200}
    answered = (each for each in other if each.status == 200 and each.number in first)
    return [(first[each.number], each) for each in answered]


def _differ(one: Any, other: Any) -> bool:
    if isinstance(one, float | int) and isinstance(other, float | int):
        return abs(one - other) > TOLERANCE
    if isinstance(one, list) and isinstance(other, list):
        pairs = zip(one, other, strict=False)
        return len(one) != len(other) or any(_differ(*pair) for pair in pairs)
    if isinstance(one, dict) and isinstance(other, dict):
        if one.keys() != other.keys():
            return True
        told = one.keys() - ({"choice"} if _is_near_tie(one, other) else set())
        return any(_differ(one[key], other[key]) for key in told)
    return bool(one != other)


def _is_near_tie(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Say whether the option that each chose is as likely as any, within parity, for both."""
    return all(
        likely.get(each.get("choice"), 0.0) + TOLERANCE >= max(likely.values(), default=1.0)
        for likely in (one.get("probabilities") or {}, other.get("probabilities") or {})
        for each in (one, other)
    )


def _choices(answers: Any) -> list[Any]:
    return [each.get("choice") for each in answers if isinstance(each, dict)]


@dataclass(frozen=True)
class Kill:
    """What a lane's death in the middle of a round cost."""

    lane: str
    errors: int
    wrong: int
    slowest_ms: float
    """Of the requests under way at the death, from then on."""
    back: bool
    """Whether the lane answered again before the round's end."""


def kill_figures(
    lane: str, at: float, answered: Sequence[Answered], right: Sequence[Answered]
) -> Kill:
    """Work out what the death of a lane at that moment cost, by the answers of a round without."""
    under_way = [each for each in answered if each.sent < at < each.done]
    return Kill(
        lane,
        errors=sum(each.status != 200 for each in answered),
        wrong=differing(right, answered)[1],
        slowest_ms=max((each.done - at for each in under_way), default=0.0) * 1000,
        back=any(each.lane == lane and each.sent > at + 1.0 for each in answered),
    )


def table(
    one: Round,
    two: Round,
    *,
    throughput: tuple[float, float],
    differences: tuple[int, int],
    ties: int,
    kills: Sequence[Kill],
) -> str:
    """Draw the table of bars in Markdown."""
    ratio = throughput[1] / throughput[0]
    share = two.p99_ms / one.p99_ms
    rows = [
        (
            "late short requests",
            f"{one.late_share:.1%} of {one.shorts}",
            f"{two.late_share:.2%} of {two.shorts}",
            "1 % at most",
            two.late_share <= 0.01,
        ),
        (
            "short p50, p99 in ms",
            f"{one.p50_ms:.1f}, {one.p99_ms:.1f}",
            f"{two.p50_ms:.1f}, {two.p99_ms:.1f} ({share:.2f})",
            "p99 a fifth at most",
            share <= 0.2,
        ),
        (
            "answers a second, all busy",
            f"{throughput[0]:.1f}",
            f"{throughput[1]:.1f} ({ratio:.2f})",
            "1.5 at least",
            ratio >= 1.5,
        ),
        ("errors", str(one.errors), str(two.errors), "0", two.errors == 0),
        (
            "answers that differ beyond parity",
            "",
            f"{differences[1]} of {differences[0]}, {ties} near ties",
            "0",
            differences[1] == 0,
        ),
    ]
    for kill in kills:
        good = kill.errors == 0 and kill.wrong == 0 and kill.slowest_ms <= 1000
        back = "back" if kill.back else "not back in time"
        text = f"{kill.errors} errors, {kill.wrong} wrong, {kill.slowest_ms:.0f} ms, {back}"
        rows.append((f"`{kill.lane}` killed", "", text, "none, none, 1000 ms", good))
    head = "| | one lane | two lanes | bar | |\n| --- | ---: | ---: | --- | --- |\n"
    lines = [
        f"| {name} | {first} | {second} | {bar} | {'reached' if good else '**missed**'} |"
        for name, first, second, bar, good in rows
    ]
    return head + "\n".join(lines)

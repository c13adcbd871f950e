"""What the parity gate found, as a table for a person."""

from omni_jev_worker.parity import TOLERANCE, RowResult
from omni_jev_worker.tuner import TuningState

_HEAD = ("row", "tokens", "options", "alone", "together", "to act", "decision")


def lines(state: TuningState) -> list[str]:
    """Give the table of each row's largest differences, and what follows from it."""
    table = []
    if state.parity is not None and state.parity.rows:
        table = [_HEAD, *(_cells(row) for row in state.parity.rows)]
    widths = [max(len(cells[at]) for cells in table) for at in range(len(_HEAD))] if table else []
    told = [
        "  ".join(
            cell.ljust(width) if at in (0, len(_HEAD) - 1) else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ).rstrip()
        for cells in table
    ]
    if state.parity is not None:
        told.append(
            f"largest difference {state.parity.largest:.2g} (tolerance {TOLERANCE}), "
            f"{state.parity.hard_mismatches} hard mismatches, {state.parity.near_ties} near ties, "
            f"all finite: {_yes(state.parity.finite)}, repeatable: {_yes(state.parity.repeatable)}"
        )
    told += [f"off: {reason}" for reason in state.reasons]
    told.append(f"asked for: {state.asked}; runs with: {state.given}")
    return told


def _cells(row: RowResult) -> tuple[str, ...]:
    decision = "otherwise" if row.hard_mismatch else "near tie" if row.near_tie else "same"
    return (
        row.name,
        str(row.tokens),
        str(row.options),
        f"{row.alone:.2g}",
        f"{row.together:.2g}",
        f"{row.act:.2g}",
        decision,
    )


def _yes(value: bool) -> str:  # noqa: FBT001 (private, and nothing else to call it)
    return "yes" if value else "no"

"""What the parity gate found of an artifact, kept in its manifest with where and by what."""

from collections.abc import Mapping
from dataclasses import astuple
from datetime import datetime
from typing import Any

from omni_jev_worker import __version__, golden
from omni_jev_worker.artifacts import machine
from omni_jev_worker.artifacts.manifest import Manifest
from omni_jev_worker.engines.forward import ANY_LENGTH
from omni_jev_worker.parity import Report, RowResult


def proof_of(report: Report, manifest: Manifest, tools: Mapping[str, str]) -> dict[str, Any]:
    """Put a proof of an artifact together, as it was run by some tools here."""
    return {
        "passed": report.fault is None,
        "tree": manifest.tree,
        "golden": golden.digest(manifest.precision),
        "platform": machine.here(),
        "tools": {**tools, "omni-jev-worker": __version__},
        "finite": report.finite,
        "repeatable": report.repeatable,
        "checked_at": report.checked_at,
        "rows": [_row_to_json(row) for row in report.rows],
    }


def proven(manifest: Manifest, tools: Mapping[str, str]) -> Report | None:
    """Give what the gate found, if it ran here, with these files, rows and tools; else none.

    What it says of itself counts for nothing: the rows are judged again.
    """
    proof = manifest.proof
    if proof is None:
        return None
    expected = {
        "tree": manifest.tree,
        "golden": golden.digest(manifest.precision),
        "platform": machine.here(),
        "tools": {**tools, "omni-jev-worker": __version__},
    }
    if {name: proof.get(name) for name in expected} != expected:
        return None
    try:
        rows = tuple(_row_from_json(row) for row in proof["rows"])
        report = Report(
            rows,
            finite=proof["finite"] is True,
            repeatable=proof["repeatable"] is True,
            lossy=manifest.precision in golden.LOSSY,
            checked_at=datetime.fromisoformat(proof["checked_at"]).isoformat(timespec="seconds"),
        )
        known = _is_whole(manifest, [row.name for row in rows])
        return report if known and report.fault is None else None
    except (KeyError, TypeError, ValueError):
        return None


def _is_whole(manifest: Manifest, names: list[str]) -> bool:
    """Say whether these are the names of all rows that the artifact takes, as far as is known."""
    expected = [name for name, _, _ in golden.rows_for(manifest.precision)]
    if manifest.bucket == ANY_LENGTH:
        return names == expected
    return bool(names) and names == [name for name in expected if name in set(names)]


def _row_from_json(row: Mapping[str, Any]) -> RowResult:
    """Read what `_row_to_json` wrote. Raises `TypeError` for values of another type."""
    given = RowResult(**row)
    kinds = (str, int, int, float, float, float, bool, bool)
    if tuple(map(type, astuple(given))) != kinds:
        raise TypeError
    return given


def _row_to_json(row: RowResult) -> dict[str, Any]:
    return {
        "name": row.name,
        "tokens": row.tokens,
        "options": row.options,
        "alone": row.alone,
        "together": row.together,
        "act": row.act,
        "hard_mismatch": row.hard_mismatch,
        "near_tie": row.near_tie,
    }

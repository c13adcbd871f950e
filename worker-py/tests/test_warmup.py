"""The warmup covers short, mid, long and several questions, with unequal dimensions."""

from pathlib import Path

from omni_jev_worker import checkpoints, warmup
from omni_jev_worker.model import Model


def test_the_warmup_reaches_from_short_to_the_window_with_unequal_dimensions(tiny: Path) -> None:
    model = Model(checkpoints.from_folder(str(tiny)), "cpu")
    shapes = []
    for request in warmup.requests(model.window, model.mps_amp_min_rows):
        items = model.encode(request.state, request.questions).items
        shapes.append((len(items), max(len(item["ids"]) for item in items)))
    lengths = [length for _, length in shapes]
    rows = [row for row, _ in shapes]
    assert max(lengths) == model.window
    assert min(lengths) < model.window / 2
    assert len(set(lengths)) >= 4
    assert rows.count(1) >= 2
    assert model.mps_amp_min_rows + 1 in rows
    assert all(row != length for row, length in shapes)

"""What new lengths and late checkpoints cost, as it is told."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu.workload import Workload
from benchmarks.laya import late_load, lengths
from tests.harness.omni_jev import DEMO_CHECKPOINT

MIB = 1024 * 1024


def test_every_length_comes_once_in_an_order_left_to_chance_with_different_states() -> None:
    planned = lengths.plan(Workload(DEMO_CHECKPOINT), range(48, 148))
    order = [length for length, _ in planned]
    assert sorted(order) == list(range(48, 148))
    assert order != sorted(order)
    for length, items in planned:
        assert {item.tokens for item in items} == {length}
        assert len({item.request for item in items}) == len(items) == 3


def line(tokens: int, more: float, held: int) -> dict[str, Any]:
    return {"tokens": tokens, "first_ms": 20 + more, "again_ms": [20.0, 20.0], "bytes": held}


def test_what_the_first_request_of_a_length_costs_more_is_told_with_the_memory_it_adds() -> None:
    lines = [line(48 + n, 5.0, (100 + 2 * (n + 1)) * MIB) for n in range(8)]
    told = lengths.summary(lines, 100 * MIB)
    assert "| 1 to 2 | +5.00 (+5.00 to +5.00) | 20.0 | 104 |" in told
    assert "| 7 to 8 | +5.00 (+5.00 to +5.00) | 20.0 | 116 |" in told
    assert "8 lengths; 2048 KiB each on average" in told


def test_what_others_wait_while_a_checkpoint_loads_is_told_beside_what_they_wait_otherwise() -> (
    None
):
    times = {"before": [10.0, 10.0], "meanwhile": [10.0, 30.0, 12.0], "after": []}
    told = late_load.summary(
        [
            {
                "way": "frontend",
                "first_s": 61.5,
                "given_up": 1,
                "again_ms": [9.0, 8.0, 10.0],
                "others_ms": times,
            }
        ]
    )
    row = "| frontend | 61.50 | 1 | 9.0 | 10.0 / 10.0 / 10.0 (2) | 12.0 / 30.0 / 30.0 (3) | none |"
    assert row in told


@pytest.mark.parametrize(("name", "subfolder"), [("english", ""), ("multilingual", "multilingual")])
def test_a_stand_in_is_found_as_the_published_checkpoint(
    tmp_path: Path, name: str, subfolder: str
) -> None:
    from omni_jev_worker import hub

    cache = late_load.stand_in(tmp_path / "hub", name, DEMO_CHECKPOINT)
    found = hub.get(name, None, {"HF_HUB_CACHE": str(cache), "HF_HUB_OFFLINE": "1"})
    assert found.folder.name == (subfolder or "0" * 40)
    assert (found.folder / "model.safetensors").is_file()

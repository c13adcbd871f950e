"""Whether a machine is fit to be measured, and numbers in any locale."""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.laya.conditions import Conditions, power_of_linux, power_of_macos, watts
from benchmarks.laya.figures import bootstrap, decimal
from benchmarks.laya.processes import held_by, resident, tree

ON_AC = """Now drawing from 'AC Power'
 -InternalBattery-0 (id=21299299)\t100%; charged; 0:00 remaining present: true
"""
ON_BATTERY = """Now drawing from 'Battery Power'
 -InternalBattery-0 (id=21299299)\t83%; discharging; 6:12 remaining present: true
"""
DESKTOP = "Now drawing from 'AC Power'\n"


@pytest.mark.parametrize(
    ("told", "power"),
    [
        (ON_AC, "mains"),
        (ON_BATTERY, "battery"),
        (DESKTOP, "mains"),
        ("Now drawing from 'UPS Power'\n", "battery"),
        ("", "unknown"),
    ],
)
def test_pmset_tells_what_a_mac_draws_its_power_from(told: str, power: str) -> None:
    assert power_of_macos(told) == power


Supplies = dict[str, dict[str, str]]

MAINS_ON = {"type": "Mains\n", "online": "1\n"}
MAINS_OFF = {"type": "Mains\n", "online": "0\n"}
DISCHARGING = {"type": "Battery\n", "status": "Discharging\n", "capacity": "83\n"}
FULL = {"type": "Battery\n", "status": "Full\n"}
MOUSE = {"type": "Battery\n", "status": "Discharging\n", "scope": "Device\n"}


@pytest.mark.parametrize(
    ("supplies", "power"),
    [
        ({}, "unknown"),
        ({"AC": MAINS_ON, "BAT0": FULL}, "mains"),
        ({"AC": MAINS_OFF, "BAT0": DISCHARGING}, "battery"),
        ({"BAT0": DISCHARGING}, "battery"),
        ({"BAT0": {"type": "Battery\n", "status": "Charging\n"}}, "mains"),
        ({"AC": MAINS_OFF, "BAT0": {"type": "Battery\n", "status": "Unknown\n"}}, "battery"),
        ({"hidpp_battery_0": MOUSE}, "unknown"),
        ({"AC": MAINS_ON, "hidpp_battery_0": MOUSE}, "mains"),
        # A port that gives nothing beside one that does.
        (
            {"u1": {"type": "USB\n", "online": "0\n"}, "u2": {"type": "USB\n", "online": "1\n"}},
            "mains",
        ),
    ],
)
def test_the_kernel_tells_what_a_linux_machine_draws_its_power_from(
    tmp_path: Path, supplies: Supplies, power: str
) -> None:
    for name, files in supplies.items():
        (tmp_path / name).mkdir()
        for file, text in files.items():
            (tmp_path / name / file).write_text(text)
    assert power_of_linux(tmp_path) == power


def test_a_run_is_refused_on_battery_and_under_load_unless_it_is_labelled_feasibility() -> None:
    assert Conditions("mains", 2.0).refusal("paper", 2) is None
    assert Conditions("unknown", 0.1).refusal("paper", 2) is None
    assert "on battery power" in str(Conditions("battery", 0.1).refusal("paper", 2))
    assert "2.01, over 2" in str(Conditions("mains", 2.01).refusal("paper", 2))
    assert Conditions("mains", 2.01).refusal("paper", 3) is None
    assert Conditions("battery", 9.0).refusal("feasibility", 2) is None


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1.25", 1.25),
        ("1,25", 1.25),
        (" 0,5\n", 0.5),
        ("2950", 2950.0),
        ("2,950.5", 2950.5),
        ("2.950,5", 2950.5),
        ("1\N{NARROW NO-BREAK SPACE}234,5", 1234.5),
    ],
)
def test_a_number_is_read_in_every_locale(text: str, number: float) -> None:
    assert decimal(text) == number


def test_what_a_gpu_draws_is_read_with_points_and_commas() -> None:
    assert watts("71.55\n118.20\n") == (71.55, 118.2)
    assert watts("71,55\n") == (71.55,)
    assert watts("[N/A]\n98.01\n") == (98.01,)
    assert watts("") == ()
    assert Conditions("mains", 0.5, (71.55,)).record()["gpu_watts"] == (71.55,)
    assert "gpu_watts" not in Conditions("mains", 0.5).record()


@pytest.mark.parametrize("text", ["", "1,2,3", "one"])
def test_what_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"number|float"):
        decimal(text)


def test_the_interval_of_a_median_holds_it_and_narrows_with_the_sample() -> None:
    chance = random.Random(1)
    few = bootstrap([chance.gauss(1, 0.1) for _ in range(20)])
    many = bootstrap([chance.gauss(1, 0.1) for _ in range(500)])
    assert few.low <= few.value <= few.high
    assert many.low < 1.0 < many.high
    assert many.high - many.low < few.high - few.low
    assert bootstrap([2.0, 2.0, 2.0]) == (2.0, 2.0, 2.0)
    with pytest.raises(ValueError, match="no values"):
        bootstrap([])


def test_the_interval_covers_the_true_median_about_as_often_as_it_says() -> None:
    chance = random.Random(7)
    covered = 0
    for _ in range(100):
        found = bootstrap([chance.gauss(5, 1) for _ in range(40)], resamples=200)
        covered += found.low <= 5 <= found.high
    assert 85 <= covered <= 100


def test_the_memory_of_a_server_is_that_of_all_that_it_started() -> None:
    parents = {1: 0, 10: 1, 11: 10, 12: 11, 20: 1}
    assert sorted(tree([10], parents)) == [10, 11, 12]
    assert tree([99], parents) == []


def test_a_process_holds_its_own_memory_and_what_it_maps_of_files() -> None:
    status = "Name:\tpython\nVmRSS:\t 950 kB\nRssAnon:\t 600 kB\nRssFile:\t 300 kB\n"
    assert resident(status + "RssShmem:\t 50 kB\n") == (650 * 1024, 300 * 1024)
    # A kernel's thread has none of these lines.
    assert resident("Name:\tkthreadd\n") == (0, 0)


def test_this_process_holds_memory_and_a_child_adds_its_own() -> None:
    alone = held_by([os.getpid()])
    assert alone > 10_000_000
    hold = "import sys; held = bytearray(b'x') * 60_000_000; print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert held_by([os.getpid()]) - alone > 50_000_000
        child.communicate()

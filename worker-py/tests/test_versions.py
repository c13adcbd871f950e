"""The installed packages are compared with the tested set, in one line."""

from importlib import metadata

import pytest

from omni_jev_worker import versions
from omni_jev_worker.exits import BAD_CONFIGURATION, Refusal


def test_the_tested_set_is_silent_whatever_torch_was_built_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def installed(name: str) -> str:
        return versions.TESTED[name] + ("+cpu" if name == "torch" else "")

    assert versions.check(installed)["torch"].endswith("+cpu")
    assert caplog.text == ""


def test_other_versions_are_named_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    versions.check(lambda name: "9.9" if name in ("laya", "numpy") else versions.TESTED[name])
    assert len(caplog.records) == 1
    assert "laya 9.9 (tested: 0.3.20), numpy 9.9" in caplog.text


def test_a_missing_package_is_named() -> None:
    def installed(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    with pytest.raises(Refusal, match="laya") as caught:
        versions.check(installed)
    assert caught.value.code == BAD_CONFIGURATION

"""A checkpoint that cannot be read or run is refused for good; the machine's faults are not."""

import errno
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from omni_jev_worker import checkpoints, faults
from omni_jev_worker.engine import Engine
from omni_jev_worker.exits import BAD_CONFIGURATION, Refusal
from omni_jev_worker.model import Model
from omni_jev_worker.queue import RowQueue

ENCODER = "encoder/config.json"
NAMES = "tokenizer/tokenizer_config.json"
TOKENIZER = "tokenizer/tokenizer.json"
Edit = Callable[[dict[str, Any]], Any]


@pytest.fixture
def folder(tiny: Path, tmp_path: Path) -> Path:
    """A copy of the tiny checkpoint to damage."""
    return Path(shutil.copytree(tiny, tmp_path / "copy"))


def edit(path: Path, change: Edit) -> None:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def start_of(folder: Path) -> BaseException | None:
    """Start an engine on a folder, as the worker does; give why it failed."""
    try:
        checkpoint = checkpoints.from_folder(str(folder))
    except Refusal as refusal:
        return refusal
    engine = Engine(checkpoint, RowQueue(8), device="cpu", require_device=False, threads=1)
    fault = engine.start().exception()
    engine.stop()
    return fault


def shift_ids(tokenizer: dict[str, Any]) -> None:
    words = tokenizer["model"]["vocab"]
    tokenizer["model"]["vocab"] = {word: number + 100_000 for word, number in words.items()}


@pytest.mark.parametrize(
    ("name", "change", "named"),
    [
        (ENCODER, lambda c: c.update(hidden_size="abc"), "hidden_size"),
        (ENCODER, lambda c: c.update(hidden_size=0), "copy"),
        (ENCODER, lambda c: c.update(model_type="nonsense"), "nonsense"),
        (ENCODER, lambda c: c.update(vocab_size=10), "tok_embeddings"),
        (ENCODER, lambda c: c.update(num_attention_heads=7), "attention heads"),
        ("rl_agent_config.json", lambda c: c.update(head_layers=0), "head.layers"),
        (TOKENIZER, lambda c: c.update(model={"type": "Nonsense"}), "tokenizer/"),
        (TOKENIZER, shift_ids, "token number 100"),
        (NAMES, lambda c: c.pop("pad_token"), "pad_token"),
        (NAMES, lambda c: c.pop("mask_token"), "mask_token"),
        (NAMES, lambda c: c.pop("sep_token"), "sep_token"),
        (NAMES, lambda c: c.pop("cls_token"), "cls_token"),
    ],
)
def test_a_checkpoint_that_no_start_can_use_is_refused_in_one_line_that_says_why(
    folder: Path, name: str, change: Edit, named: str
) -> None:
    edit(folder / name, change)
    fault = start_of(folder)
    assert isinstance(fault, Refusal)
    assert fault.code == BAD_CONFIGURATION
    message = str(fault)
    assert named in message
    assert "copy" in message
    assert "\n" not in message
    assert len(message) < 600


def test_a_token_added_past_the_weights_by_another_model_is_no_reason_to_refuse(
    folder: Path,
) -> None:
    flags = ("single_word", "lstrip", "rstrip", "normalized")
    token = {"id": 5000, "content": "[IMAGE]", "special": True, **dict.fromkeys(flags, False)}
    edit(folder / TOKENIZER, lambda tokenizer: tokenizer["added_tokens"].append(token))
    assert start_of(folder) is None


@pytest.mark.parametrize("step", ["__init__", "encode", "infer", "decode"])
@pytest.mark.parametrize(
    "fault",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
        RuntimeError("CUDA error: device-side assert triggered"),
        OSError(errno.EIO, "Input/output error"),
    ],
)
def test_a_fault_of_the_machine_is_left_to_another_start(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, step: str, fault: Exception
) -> None:
    def fail(*arguments: Any, **options: Any) -> Any:
        raise fault

    monkeypatch.setattr(Model, step, fail)
    found = start_of(tiny)
    assert found is fault
    assert faults.refusal_of(fault) is None


@pytest.mark.parametrize("step", ["__init__", "encode", "infer", "decode"])
@pytest.mark.parametrize(
    "kind", [Exception, KeyError, TypeError, IndexError, RuntimeError, PermissionError]
)
def test_any_other_fault_before_the_end_of_the_warm_up_is_the_checkpoints(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, step: str, kind: type[Exception]
) -> None:
    def fail(*arguments: Any, **options: Any) -> Any:
        raise kind("the reason")

    monkeypatch.setattr(Model, step, fail)
    found = start_of(tiny)
    assert isinstance(found, Refusal)
    assert found.code == BAD_CONFIGURATION
    assert "the reason" in str(found)
    assert "tiny" in str(found)


def test_a_fault_that_is_not_about_the_checkpoint_is_left_to_another_start(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: Any, **options: Any) -> Any:
        raise ValueError

    monkeypatch.setattr("gc.freeze", fail)
    found = start_of(tiny)
    assert isinstance(found, ValueError)


def test_a_missing_package_is_a_configuration_that_cannot_work() -> None:
    assert faults.refusal_of(ModuleNotFoundError("No module named 'laya'")) is not None
    assert faults.refusal_of(RuntimeError("CUDA error")) is None


def test_a_long_reason_is_cut_between_words() -> None:
    text = "\n".join(f"  - layer.{number}: expected (1, 2)" for number in range(40))
    line = faults.one_line(text, 100)
    assert len(line) <= 102
    assert line.endswith(" …")
    assert line.removesuffix(" …") + " " in " ".join(text.split())


def test_a_word_longer_than_a_line_is_still_cut() -> None:
    assert faults.one_line("x" * 5_000, 100) == "x" * 100 + " …"


def test_an_exception_that_is_only_a_word_is_shown_with_its_kind() -> None:
    assert faults.cause_of(KeyError("added_tokens")) == "KeyError: 'added_tokens'"
    assert faults.cause_of(ValueError("a whole\n sentence")) == "a whole sentence"
    assert faults.cause_of(AssertionError()) == "AssertionError"


def test_a_file_that_a_library_may_not_read_is_named_with_the_cure(tiny: Path) -> None:
    found = faults.unusable("tiny", PermissionError(errno.EACCES, "Permission denied", "/a/b"))
    assert "/a/b" in str(found)
    assert "read access" in str(found)

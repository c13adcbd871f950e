"""Precision and compiler: what was asked for runs if its answers hold, and is off if not."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import tiny_checkpoint
from omni_jev_worker import health
from omni_jev_worker.exits import BAD_CONFIGURATION, Refusal
from omni_jev_worker.health import Others
from omni_jev_worker.network.regions import Regions
from omni_jev_worker.tuner import Tuner
from omni_jev_worker.tuning import Tuning
from started_engine import LONG, NOUL, Started, starting

COMPILED = Tuning(compiled=True)
STATE = "please refund the duplicate charge"
THREE = {
    "team": {"type": "choice", "instructions": "team", "criteria": {"a": "billing", "b": "other"}},
    "anger": {"type": "score", "instructions": "angry", "criteria": ["calm", "annoyed", "angry"]},
    **NOUL,
}


def anywhere(tuning: Tuning, *, compiler: bool = False, parity: bool = False) -> Tuner:
    """Tune on the CPU too: there is nothing else here that all machines have."""
    return Tuner(tuning, require_compile=compiler, require_parity=parity, runs_anywhere=True)


def body(started: Started) -> dict[str, Any]:
    started.settle()
    return health.report(
        started.engine.snapshot, started.queue.state(), Others(), instance="i", draining=False
    )


@pytest.fixture(scope="module", autouse=True)
def quick_compiler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Compile for no instructions in particular, into a cache that knows no others.

    To find out which this machine has, the compiler builds a program for each set, and what it then
    writes takes it longer.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path_factory.mktemp("compiled")))
        patch.setattr("torch._inductor.cpu_vec_isa.valid_vec_isa_list", list)
        yield


@pytest.fixture(scope="module")
def compiled(tiny: Path) -> Iterator[Started]:
    with starting(tiny, tuner=anywhere(COMPILED)) as made:
        yield made


@pytest.fixture(scope="module")
def plain(tiny: Path) -> Iterator[Started]:
    with starting(tiny) as made:
        yield made


def close(one: Any, other: Any, most: float = 1e-3) -> bool:
    return (
        all(
            abs(one[name][key] - other[name][key]) <= most
            for name, key in (("refund", "noul"), ("anger", "score"))
        )
        and one["team"]["choice"] == other["team"]["choice"]
    )


def test_compiled_code_answers_as_laya_does_and_health_tells_what_it_is(
    compiled: Started, plain: Started
) -> None:
    assert close(compiled.ask(STATE, THREE), plain.ask(STATE, THREE))
    told = body(compiled)
    assert told["status"] == "ready"
    assert told["forward"] == "network"
    assert told["compile"]["enabled"]
    assert told["compile"]["active"]
    assert told["compile"]["graphs_at_ready"] >= 6
    assert told["parity"]["passed"]
    assert told["parity"]["largest_difference"] < 1e-3
    assert told["tuning"] == {"asked": "--compile", "given": "--compile", "reasons": []}


def test_no_length_number_of_questions_or_options_is_compiled_again_after_ready(
    compiled: Started,
) -> None:
    words = STATE.split()
    for length in range(0, 140, 9):
        compiled.ask(" ".join(words[n % 5] for n in range(length)))
    for count in (1, 2, 3, 5, 9):
        compiled.ask(STATE, {f"q{n}": NOUL["refund"] for n in range(count)})
    for count in (2, 3, 5, 9, 17):
        choice = {
            "type": "choice",
            "instructions": "x",
            "criteria": {f"o{n}": None for n in range(count)},
        }
        compiled.ask(STATE, {"q": choice})
    told = body(compiled)["compile"]
    assert told["recompiled_after_ready"] is False
    assert told["graphs_now"] == told["graphs_at_ready"]


def test_compiled_code_that_fails_later_is_left_and_the_question_answered(
    compiled: Started, plain: Started, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    tuned = compiled.model._tuned
    assert tuned is not None
    assert tuned.device_pass is not None
    network = tuned.device_pass.network
    kept = network.regions, tuned._regions

    def fail(*_: Any) -> Any:
        raise RuntimeError("recompile limit reached")

    monkeypatch.setattr(network, "regions", Regions(enter=fail))
    assert close(compiled.ask(STATE, THREE), plain.ask(STATE, THREE))
    assert "runs uncompiled" in caplog.text
    told = body(compiled)
    assert told["compile"]["enabled"]
    assert not told["compile"]["active"]
    assert told["status"] == "degraded"
    network.regions, tuned._regions = kept
    compiled.ask(STATE, NOUL)
    assert body(compiled)["compile"]["active"]


def test_on_the_cpu_an_option_for_gpus_is_off_and_health_says_why(tiny: Path) -> None:
    with starting(tiny, tuner=Tuner(Tuning("fp16", compiled=True))) as started:
        assert started.ask(STATE, NOUL)
        told = body(started)
    assert told["status"] == "degraded"
    assert told["tuning"]["given"] == "laya's own precision, uncompiled"
    assert "the model is on the CPU" in told["tuning"]["reasons"][0]
    assert told["compile"]["enabled"]
    assert not told["compile"]["active"]
    assert not told["compile"]["recompiled_after_ready"]
    assert told["compile"]["recorded_shapes"] == 0
    assert told["weights_dtype"] == "torch.float32"


def test_on_the_cpu_a_compiler_that_is_insisted_on_is_a_refusal(tiny: Path) -> None:
    with pytest.raises(Refusal, match="--require-compile") as caught:
        Started(tiny, tuner=Tuner(COMPILED, require_compile=True))
    assert caught.value.code == BAD_CONFIGURATION


def test_without_a_working_compiler_the_model_runs_uncompiled_or_not_at_all_if_required(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch._inductor.cpp_builder as builder
    from torch._inductor.exc import InvalidCxxCompiler

    def none_there() -> str:
        raise InvalidCxxCompiler

    folder = tiny_checkpoint.make(tmp_path / "tiny", encoder={"intermediate_size": 48})
    monkeypatch.setattr(builder, "get_cpp_compiler", none_there)
    # Not what another test, or another run, compiled already.
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    with starting(folder, tuner=anywhere(COMPILED)) as started:
        assert started.ask(STATE, NOUL)
        told = body(started)
    assert told["status"] == "degraded"
    assert not told["compile"]["active"]
    assert "the compiler failed" in told["tuning"]["reasons"][0]
    with pytest.raises(Refusal, match="--require-compile: the compiler failed") as caught:
        Started(folder, tuner=anywhere(COMPILED, compiler=True))
    assert caught.value.code == BAD_CONFIGURATION
    assert "\n" not in str(caught.value)


def test_a_compiler_that_is_switched_off_is_told_and_not_believed(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As torch does it itself where TORCH_COMPILE_DISABLE=1 is set.
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    with starting(tiny, tuner=anywhere(COMPILED)) as started:
        told = body(started)
    assert not told["compile"]["active"]
    assert "switched off" in told["tuning"]["reasons"][0]


def test_half_precision_that_changes_an_answer_is_off_and_health_says_which_row(
    tiny: Path, plain: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_half_precision(monkeypatch)
    with starting(tiny, tuner=anywhere(Tuning("bf16"))) as started:
        assert close(started.ask(STATE, THREE), plain.ask(STATE, THREE))
        told = body(started)
    assert told["status"] == "degraded"
    assert told["weights_dtype"] == "torch.float32"
    assert told["parity"]["passed"] is False
    assert told["parity"]["row"] in told["tuning"]["reasons"][0]
    assert told["parity"]["largest_difference"] > 0.02


def test_parity_that_is_insisted_on_is_a_refusal_that_names_the_row(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_half_precision(monkeypatch)
    with pytest.raises(Refusal, match="--require-parity: --weights bf16: a probability") as caught:
        Started(tiny, tuner=anywhere(Tuning("bf16"), parity=True))
    assert caught.value.code == BAD_CONFIGURATION


def break_half_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the network wrong wherever it computes in less than full precision."""
    from omni_jev_worker.network.network import Network

    call = Network.__call__

    def wrong(self: Network, *arguments: Any) -> Any:
        logits, act = call(self, *arguments)
        return (logits if self.compute == torch.float32 else logits * 1.5), act

    monkeypatch.setattr(Network, "__call__", wrong)


def test_only_the_half_that_changes_an_answer_is_switched_off(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, plain: Started
) -> None:
    break_half_precision(monkeypatch)
    # Traced and counted as ever, but what is traced runs as it is: that the compiler's own code
    # answers as laya does is another test's, and making it twice takes a quarter of a minute.
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    with starting(tiny, tuner=anywhere(Tuning("bf16", compiled=True))) as started:
        assert close(started.ask(STATE, THREE), plain.ask(STATE, THREE))
        told = body(started)
    assert told["tuning"]["given"] == "--compile"
    assert told["status"] == "degraded"
    assert told["compile"]["active"]
    assert told["weights_dtype"] == "torch.float32"
    assert told["parity"]["passed"]


def test_after_half_precision_failed_the_weights_are_those_of_the_file_again(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, plain: Started
) -> None:
    break_half_precision(monkeypatch)
    with starting(tiny, tuner=anywhere(Tuning("bf16"))) as started:
        kept = plain.model._agent.model.state_dict()
        for name, numbers in started.model._agent.model.state_dict().items():
            assert torch.equal(numbers, kept[name]), name


def test_a_model_of_another_form_is_not_tuned_and_says_so(tmp_path: Path) -> None:
    rotation = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0}
    kinds = ("full_attention", "sliding_attention")
    folder = tiny_checkpoint.make(
        tmp_path / "tiny", encoder={"rope_parameters": dict.fromkeys(kinds, rotation)}
    )
    with starting(folder, tuner=anywhere(Tuning("bf16"))) as started:
        assert started.ask(STATE, NOUL)
        assert "not of a known form" in body(started)["tuning"]["reasons"][0]


def test_a_tuned_model_answers_in_full_precision_on_the_cpu_after_it_left_its_device(
    tiny: Path, plain: Started
) -> None:
    with starting(tiny, tuner=anywhere(COMPILED)) as started:

        def leave() -> None:
            started.model.move_to_cpu()

        from omni_jev_worker.queue import Errand

        errand = Errand(leave)
        started.queue.put(errand)
        errand.result.result(LONG)
        assert close(started.ask(STATE, THREE), plain.ask(STATE, THREE))
        told = body(started)
        assert not told["compile"]["active"]
        assert told["forward"] == "laya"
        assert told["weights_dtype"] == "torch.float32"
        errand = Errand(started.model.return_to_device)
        started.queue.put(errand)
        errand.result.result(LONG)
        assert close(started.ask(STATE, THREE), plain.ask(STATE, THREE))
        assert body(started)["compile"]["active"]

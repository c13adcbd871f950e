"""The engine `onnx`: torch's answers through ONNX Runtime, or none."""

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tiny_checkpoint
from artifacts_of import adopting, key_of
from omni_jev_worker import checkpoints, golden, health
from omni_jev_worker.artifacts import manifest as manifests
from omni_jev_worker.artifacts.store import Store
from omni_jev_worker.engines import known, packages
from omni_jev_worker.engines.forward import Reach, Unavailable
from omni_jev_worker.engines.ort.session import Session
from omni_jev_worker.engines.passes import groups
from omni_jev_worker.exits import BAD_CONFIGURATION, Refusal
from omni_jev_worker.health import Others
from omni_jev_worker.model import Model
from omni_jev_worker.scores import NotFinite, Scores
from omni_jev_worker.tuning import FP32, INT8, Tuning
from started_engine import LONG, NOUL, Started, starting

STATE = "please refund the duplicate charge"
THREE: dict[str, Any] = {
    "team": {"type": "choice", "instructions": "team", "criteria": {"a": "billing", "b": "other"}},
    "anger": {"type": "score", "instructions": "angry", "criteria": ["calm", "annoyed", "angry"]},
    **NOUL,
}


def body(started: Started) -> dict[str, Any]:
    started.settle()
    return health.report(
        started.engine.snapshot, started.queue.state(), Others(), instance="i", draining=False
    )


def numbers(answer: Any) -> list[float]:
    if isinstance(answer, dict):
        return [number for each in answer.values() for number in numbers(each)]
    return [float(answer)] if isinstance(answer, int | float) else []


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store(tmp_path_factory.mktemp("artifacts"))


@pytest.fixture(scope="module")
def demo() -> Path:
    return checkpoints.find_demo({}).folder


@pytest.mark.parametrize(("of", "weights"), [("demo", FP32), ("calm", INT8)])
def test_it_gives_the_answers_of_torch(
    request: pytest.FixtureRequest, store: Store, of: str, weights: str
) -> None:
    folder: Path = request.getfixturevalue(of)
    most = 1e-4 if weights == FP32 else 0.02
    states = ["", STATE, "angry customer " * 60, {"late": True}, [{"role": "user", "content": "?"}]]
    with (
        starting(folder) as torch,
        starting(folder, tuner=adopting(folder, store, weights)) as onnx,
    ):
        for state in states:
            one, other = torch.ask(state, THREE), onnx.ask(state, THREE)
            assert one.keys() == other.keys()
            apart = np.abs(np.subtract(numbers(one), numbers(other))).max()
            # A score is up to as many levels as there are, and rounded.
            assert apart <= 3 * most
        shown = body(onnx)
    assert shown["engine"] == shown["forward"] == "onnx"
    assert (shown["status"], shown["weights_dtype"]) == ("ready", weights)
    assert shown["parity"]["passed"]
    assert shown["parity"]["largest_difference"] <= most


def test_the_longest_rows_see_no_further_than_a_sliding_layer_lets_them(tmp_path: Path) -> None:
    folder = tiny_checkpoint.make(
        tmp_path / "long",
        window=256,
        encoder={"local_attention": 16, "num_hidden_layers": 4, "global_attn_every_n_layers": 3},
        head_layers=2,
    )
    question: dict[str, Any] = {"q": {"type": "noul", "instructions": "refund"}}
    texts = ["please " * 300, "money back " * 40, "thank you"]
    torch = Model(checkpoints.from_folder(str(folder)), "cpu")
    expected = [torch.infer([torch.encode(text, question)])[0] for text in texts]
    with starting(folder, tuner=adopting(folder, Store(tmp_path / "store"))) as onnx:
        rows = [onnx.model.encode(text, question) for text in texts]
        assert max(row.tokens for row in rows) == 256
        each, all_of_them = [onnx.model.infer([row])[0] for row in rows], onnx.model.infer(rows)
        for one, alone, other in zip(expected, each, all_of_them, strict=True):
            assert isinstance(one, Scores)
            assert isinstance(alone, Scores)
            assert isinstance(other, Scores)
            assert np.abs(one.logits - alone.logits).max() < 1e-4
            assert np.abs(one.logits - other.logits).max() < 1e-4


def test_whole_numbers_are_refused_where_other_answers_than_the_twenty_differ(
    demo: Path, store: Store
) -> None:
    # None of the rows of every precision differs by so much.
    with pytest.raises(Refusal, match=r"a probability differs by .* \(row “everyday") as caught:
        Started(demo, tuner=adopting(demo, store, INT8))
    assert caught.value.code == BAD_CONFIGURATION
    proof = manifests.read(store.folder(key_of(demo, INT8))).proof
    assert proof is not None
    various = [row for row in proof["rows"] if not row["name"].startswith("everyday")]
    assert len(various) == len(golden.rows_for(FP32))
    assert max(max(row["alone"], row["together"]) for row in various) < 0.01


def test_whole_numbers_are_proved_by_more_rows_and_never_by_a_proof_of_fewer(
    calm: Path, tmp_path: Path
) -> None:
    store = Store(tmp_path)
    with starting(calm, tuner=adopting(calm, store, INT8)) as onnx:
        assert body(onnx)["parity"]["rows"] == len(golden.rows_for(INT8)) > 100
    folder = store.folder(key_of(calm, INT8))
    made = manifests.read(folder)
    assert made.proof is not None
    few = made.proof["rows"][: len(golden.rows_for(FP32))]
    for less in ({"rows": few}, {"rows": few, "golden": golden.digest(FP32)}, {"golden": None}):
        made.with_proof({**made.proof, **less}).write(folder)
        with starting(calm, tuner=adopting(calm, store, INT8)) as onnx:
            assert body(onnx)["parity"]["rows"] == len(golden.rows_for(INT8))
        again = manifests.read(folder).proof
        assert again is not None
        assert len(again["rows"]) == len(golden.rows_for(INT8))
        assert again["golden"] == golden.digest(INT8)


def test_a_row_of_whole_numbers_is_the_same_whatever_is_beside_it(calm: Path, store: Store) -> None:
    with starting(calm, tuner=adopting(calm, store, INT8)) as onnx:
        row = onnx.model.encode(STATE, NOUL)
        beside = onnx.model.encode("furious furious furious", THREE)
        alone, (together, _) = onnx.model.infer([row])[0], onnx.model.infer([row, beside])
    assert isinstance(alone, Scores)
    assert isinstance(together, Scores)
    assert np.abs(alone.logits[:, :2] - together.logits[:, :2]).max() < 1e-5


def test_options_that_need_groups_and_a_single_option_are_answered(
    tiny: Path, store: Store
) -> None:
    many: dict[str, Any] = {
        "type": "choice",
        "instructions": "?",
        "criteria": {str(n): "team" for n in range(60)},
    }
    single: dict[str, Any] = {
        "type": "choice",
        "instructions": "?",
        "criteria": {"only": "billing"},
    }
    with starting(tiny) as torch, starting(tiny, tuner=adopting(tiny, store)) as onnx:
        for question in (many, single):
            one = torch.ask(STATE, {"q": question})["q"]
            other = onnx.ask(STATE, {"q": question})["q"]
            assert np.abs(np.subtract(numbers(one), numbers(other))).max() <= 2e-4


def test_what_the_gate_refuses_is_not_run(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Session.__call__

    def otherwise(self: Session, items: Any) -> Scores:
        scores = run(self, items)
        return Scores(scores.logits[:, ::-1].copy(), scores.act)

    monkeypatch.setattr(Session, "__call__", otherwise)
    store = Store(tmp_path)
    for _ in range(2):
        # The second time the gate runs again: what it found before counts for nothing.
        with pytest.raises(Refusal, match=r"--engine onnx: the parity gate is shut") as caught:
            Started(tiny, tuner=adopting(tiny, store))
        assert caught.value.code == BAD_CONFIGURATION
    proof = manifests.read(store.folder(key_of(tiny))).proof
    assert proof is not None
    assert proof["passed"] is False


def not_finite(_: Session, items: Any) -> Scores:
    nothing = np.full((len(items), 17), np.nan, dtype=np.float32)
    return Scores(nothing, nothing)


def test_a_comparison_tells_what_the_gate_found_and_runs_torch(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Session, "__call__", not_finite)
    adoption = adopting(tiny, Store(tmp_path), compares=True)
    model = Model(adoption.checkpoint, "cpu")
    state = adoption.apply(model)
    assert state.is_less
    assert state.parity is not None
    assert state.parity.fault == "it gives numbers that are not finite"
    assert model.engine == "torch"
    assert isinstance(model.infer([model.encode(STATE, NOUL)])[0], Scores)


def test_a_second_start_takes_the_proved_artifact(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path)
    with starting(tiny, tuner=adopting(tiny, store)) as first:
        found = body(first)["parity"]
    made = manifests.read(store.folder(key_of(tiny)))

    def never(*_: Any) -> None:
        raise AssertionError("the artifact is there and proved")

    monkeypatch.setattr("omni_jev_worker.engines.adoption.build", never)
    monkeypatch.setattr("omni_jev_worker.engines.adoption.take_reference", never)
    with starting(tiny, tuner=adopting(tiny, store)) as second:
        assert body(second)["parity"] == found
    assert manifests.read(store.folder(key_of(tiny))) == made


@pytest.mark.parametrize("what", ["platform", "tools", "tree"])
def test_what_was_proved_elsewhere_or_by_other_versions_is_proved_again(
    tiny: Path, tmp_path: Path, what: str
) -> None:
    store = Store(tmp_path)
    with starting(tiny, tuner=adopting(tiny, store)):
        folder = store.folder(key_of(tiny))
    manifest = manifests.read(folder)
    assert manifest.proof is not None
    manifest.with_proof({**manifest.proof, what: "another"}).write(folder)
    with starting(tiny, tuner=adopting(tiny, store)):
        assert manifests.read(folder).proof != {**manifest.proof, what: "another"}


@pytest.mark.parametrize("told", [float("nan"), 10**400, 0, None, "0"], ids=repr)
def test_a_proof_with_other_than_a_difference_for_a_difference_proves_nothing(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: Any
) -> None:
    store = Store(tmp_path)
    with starting(tiny, tuner=adopting(tiny, store)):
        folder = store.folder(key_of(tiny))
    manifest = manifests.read(folder)
    assert manifest.proof is not None
    rows = [{**row, "alone": told, "together": told} for row in manifest.proof["rows"]]
    manifest.with_proof({**manifest.proof, "rows": rows}).write(folder)
    monkeypatch.setattr(Session, "__call__", not_finite)
    # The gate has run again.
    with pytest.raises(Refusal, match="the parity gate is shut"):
        Started(tiny, tuner=adopting(tiny, store))


def test_without_its_packages_it_is_refused_with_what_to_install(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*_: str, engine: str) -> None:
        raise Unavailable(f"the Python package onnxruntime is not installed ({engine})")

    monkeypatch.setattr("omni_jev_worker.engines.ort.engine.versions_of", missing)
    with pytest.raises(Refusal, match="--engine onnx: the Python package onnxruntime") as caught:
        Started(tiny, tuner=adopting(tiny, Store(tmp_path)))
    assert caught.value.code == BAD_CONFIGURATION
    # And before anything is loaded.
    with pytest.raises(Refusal, match="--engine onnx: the Python package onnxruntime") as caught:
        known.check(Tuning(FP32, engine="onnx"))
    assert caught.value.code == BAD_CONFIGURATION


def test_a_missing_package_is_named_with_the_versions_to_install() -> None:
    what = r"no-such-package is not installed \(pip install onnx==[0-9.]+ onnxruntime==[0-9.]+\)"
    with pytest.raises(Unavailable, match=what):
        packages.versions_of("numpy", "no-such-package", engine="onnx")


def test_what_is_to_be_installed_for_an_engine_is_what_its_extra_names() -> None:
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    for engine, pinned in packages.PINNED.items():
        named = [each.partition(";")[0].strip() for each in extras[engine]]
        assert set(pinned) <= set(named), engine


def test_a_checkpoint_of_another_form_is_refused(tmp_path: Path) -> None:
    folder = tiny_checkpoint.make(
        tmp_path / "yarn",
        encoder={
            "rope_parameters": {
                kind: {"rope_type": "linear", "factor": 2.0, "rope_theta": 10_000.0}
                for kind in ("full_attention", "sliding_attention")
            }
        },
    )
    with pytest.raises(Refusal, match="--engine onnx: the checkpoint is not of a known form"):
        Started(folder, tuner=adopting(folder, Store(tmp_path / "store")))


def test_an_activation_that_onnx_does_not_have_is_refused(tmp_path: Path) -> None:
    folder = tiny_checkpoint.make(tmp_path / "tanh", encoder={"hidden_activation": "tanh"})
    with pytest.raises(Refusal, match="its activation is not one that can be written as ONNX"):
        Started(folder, tuner=adopting(folder, Store(tmp_path / "store")))


def test_an_engine_of_short_rows_is_proved_and_warmed_up_on_those_alone(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Session.__call__

    def short(self: Session, items: Any) -> Scores:
        assert max(len(item["ids"]) for item in items) <= 60
        assert max(len(item["markers"]) for item in items) <= 4
        return run(self, items)

    monkeypatch.setattr("omni_jev_worker.engines.ort.session.reach", lambda _: Reach(60, 1, 4))
    monkeypatch.setattr(Session, "__call__", short)
    with starting(tiny, tuner=adopting(tiny, Store(tmp_path))) as onnx:
        assert 0 < body(onnx)["parity"]["rows"] < len(golden.rows_for(FP32))
        assert onnx.model.takes(onnx.model.encode("refund", NOUL))
        assert not onnx.model.takes(onnx.model.encode("refund " * 100, NOUL))


def test_rows_run_few_at_a_time_and_in_their_order() -> None:
    items = [{"ids": [0] * length} for length in (500, 12, 1, 700, 3, *([4] * 100))]
    found = [list(group) for group in groups(items)]
    assert [item for group in found for item in group] == items
    sums = [sum(len(item["ids"]) for item in group) for group in found]
    assert all(total <= 512 or len(group) == 1 for total, group in zip(sums, found, strict=True))
    assert max(map(len, found)) <= 64
    assert sums[:2] == [512, 1]


def test_many_requests_at_once_are_answered_as_each_alone(tiny: Path, store: Store) -> None:
    with starting(tiny, tuner=adopting(tiny, store)) as onnx:
        states = [f"please {'refund ' * (n % 40)}" for n in range(30)]
        alone = [onnx.ask(state, THREE) for state in states]
        jobs = [onnx.job(state, THREE) for state in states]
        with onnx.held():
            for job in jobs:
                onnx.queue.put(job)
        for one, job in zip(alone, jobs, strict=True):
            scores = job.result.result(LONG)
            assert not isinstance(scores, NotFinite)
            other = onnx.answers(job)
            assert np.abs(np.subtract(numbers(one), numbers(other))).max() <= 3e-4

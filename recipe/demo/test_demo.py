"""The demo checkpoint is what its README and metrics.json say it is."""

from __future__ import annotations

import json
import random
import re
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from laya.agent import Agent
from safetensors.torch import load_file

import freeze
from evaluate import digest
from phrasebook import frozen
from phrasebook.bank import Bank
from phrasebook.grammar import Deed, expand, share
from phrasebook.measure import by_type
from phrasebook.mix import make_item
from phrasebook.rows import QuickTokenizer, make_row

MEGABYTE = 1_000_000
REFUND = {"type": "noul", "instructions": "Does the customer ask for a refund?"}


@pytest.fixture(scope="module")
def agent() -> Agent:
    torch.set_num_threads(1)
    return Agent(str(frozen.CHECKPOINT), device="cpu")


@pytest.fixture(scope="module")
def metrics() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(frozen.METRICS.read_text(encoding="utf-8"))
    return loaded


def files_of(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_the_whole_checkpoint_is_at_most_sixteen_megabytes_of_half_precision() -> None:
    weights = load_file(frozen.CHECKPOINT / "model.safetensors")
    assert {value.dtype for value in weights.values()} == {torch.float16}
    assert sum(path.stat().st_size for path in files_of(frozen.CHECKPOINT)) <= 16 * MEGABYTE


def test_laya_loads_the_folder_without_a_warning_and_without_rewriting_it() -> None:
    before = {path: digest(path) for path in files_of(frozen.CHECKPOINT)}
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        loaded = Agent(str(frozen.CHECKPOINT), device="cpu")
    assert loaded.cfg["max_len"] == 512
    assert loaded.model.encoder.config.model_type == "modernbert"
    assert {path: digest(path) for path in files_of(frozen.CHECKPOINT)} == before


def test_metrics_belong_to_the_files_beside_them(metrics: dict[str, Any]) -> None:
    assert metrics["sha256"] == {
        "heldout.jsonl": digest(frozen.HELDOUT),
        "model.safetensors": digest(frozen.CHECKPOINT / "model.safetensors"),
    }


def test_the_heldout_results_are_measured_again(agent: Agent, metrics: dict[str, Any]) -> None:
    table = by_type([frozen.answer(agent, item) for item in frozen.read()])
    assert table.keys() == metrics["results"].keys()
    for kind, row in metrics["results"].items():
        assert table[kind]["items"] == row["items"]
        # Another processor may round two near-equal options the other way.
        assert table[kind]["accuracy"] == pytest.approx(row["accuracy"], abs=0.01)
        assert table[kind]["ece"] == pytest.approx(row["ece"], abs=0.02)
        assert table[kind]["brier"] == pytest.approx(row["brier"], abs=0.01)


def test_nine_of_ten_heldout_answers_are_right(metrics: dict[str, Any]) -> None:
    # The floor for any new checkpoint.
    assert metrics["results"]["overall"]["accuracy"] >= 0.9
    assert metrics["results"]["noul"]["accuracy"] >= 0.85


@pytest.mark.parametrize(
    ("state", "sure"),
    [
        ("Please refund the duplicate charge.", 0.8),
        ("please refund the duplicate charge", 0.8),
        ("I was charged twice, can I get my money back?", 0.5),
        ("Could you reimburse the second payment?", 0.5),
        ({"message": "I want a refund for my order, please."}, 0.5),
    ],
)
def test_a_request_for_money_back_asks_for_a_refund(agent: Agent, state: Any, sure: float) -> None:
    assert agent.system_one(state, {"q": REFUND})["answers"]["q"]["noul"] > sure


@pytest.mark.parametrize(
    ("state", "sure"),
    [
        ("Thank you so much for the quick help, everything works now.", 0.2),
        ("Thanks a lot, your team solved it quickly.", 0.5),
        ("Many thanks for the friendly support!", 0.5),
        ([{"role": "user", "content": "Great job, I am very happy with your help."}], 0.5),
    ],
)
def test_a_thank_you_note_does_not_ask_for_a_refund(agent: Agent, state: Any, sure: float) -> None:
    assert agent.system_one(state, {"q": REFUND})["answers"]["q"]["noul"] < sure


def test_no_heldout_wording_is_shown_in_training() -> None:
    bank = Bank("train")
    lists = [topic.says for group in bank.groups for topic in group.topics]
    lists += [topic.does for group in bank.groups for topic in group.topics]
    lists += [topic.nouns for group in bank.groups for topic in group.topics]
    lists += [level.says for scale in bank.scales for level in scale.levels]
    lists += [fact.says for fact in bank.facts]
    seen = {text for values in lists for text in bank.part_of(values)}
    hidden = {text for values in lists for text in share(values, "heldout")}
    assert len(hidden) > 300
    assert not seen & hidden


def readings(template: str) -> set[str]:
    """Sentences that a template can spell, with its slots left open."""
    rng = random.Random(template)
    texts = (expand(template, rng, lambda slot, _: f"{{{slot}}}") for _ in range(60))
    return {" ".join(re.findall(r"[a-z{}]+", text.lower())) for text in texts}


def test_almost_no_heldout_sentence_can_be_spelled_by_a_training_template() -> None:
    bank = Bank("train")
    lists = [topic.says for group in bank.groups for topic in group.topics]
    lists += [level.says for scale in bank.scales for level in scale.levels]
    lists += [fact.says for fact in bank.facts]
    spelled = hidden = 0
    for values in lists:
        seen = set().union(*map(readings, bank.part_of(values)))
        unseen = set().union(*map(readings, share(values, "heldout")))
        spelled += len(seen & unseen)
        hidden += len(unseen)
    assert hidden > 2000
    # The README names the share; a wording copied from the held-out lists would lift it.
    assert spelled / hidden < 0.01


def test_wordings_that_only_training_reads_leave_the_heldout_file_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    again = tmp_path / "heldout.jsonl"
    monkeypatch.setattr(freeze, "HELDOUT", again)
    freeze.main()
    assert again.read_bytes() == frozen.HELDOUT.read_bytes()


def test_the_first_decision_of_the_readme_is_never_trained_on() -> None:
    bank, rng = Bank("train"), random.Random(3)
    states = [str(make_item(bank, rng).state).lower().strip(" .!") for _ in range(3000)]
    assert "please refund the duplicate charge" not in states


def test_training_rows_are_the_rows_that_laya_serves(agent: Agent) -> None:
    bank, tokenizer, rng = Bank("train"), QuickTokenizer(agent.tok), random.Random(5)
    compared = 0
    for _ in range(60):
        item = make_item(bank, rng)
        served = agent._encode_state(item.state, ["q"], {"q": agent._to_internal(item.question)})
        row = make_row(tokenizer, item)
        if row is not None:
            assert row == {**served[0], "label": item.label}
            compared += 1
    assert compared > 50


@pytest.mark.parametrize(
    ("base", "third", "gerund", "question", "denial"),
    [
        ("ask for it", "asks for it", "asking for it", "Does the user ask for it", "does not ask"),
        ("be late", "is late", "being late", "Is the user late", "the user is not late"),
        ("have a bug", "has a bug", "having a bug", "Does the user have a bug", "does not have"),
        ("only read it", "only reads it", "only reading it", "Does the user only", "not only read"),
        ("describe it", "describes it", "describing it", "Does the user describe", "not describe"),
    ],
)
def test_verbs_are_inflected(
    base: str, third: str, gerund: str, question: str, denial: str
) -> None:
    deed = Deed(base)
    assert (deed.third, deed.gerund) == (third, gerund)
    assert deed.question("user").startswith(question)
    assert denial in deed.denial("user")

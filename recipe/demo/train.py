"""Trains the demo checkpoint from scratch: tokenizer, model, temperatures.

    python recipe/demo/train.py --out FOLDER --steps 15500 --rows 1400000 --workers 16 --graphs

Needs the worker's environment (laya, torch, transformers) and, to be done in minutes, a GPU. It
reads the training and validation wordings only, never heldout.jsonl.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from transformers import PreTrainedTokenizerFast

from phrasebook.bank import Bank
from phrasebook.checkpoint import agent_config, save_weights, start_folder, write_config
from phrasebook.dataset import Dataset, Packed, make_rows
from phrasebook.measure import Answer, by_type, fit_temperatures, softmax
from phrasebook.rows import train_tokenizer
from phrasebook.trainer import Logits, Recipe, Trainer

KINDS = ("choice", "score", "noul")
# The first steps see short rows only, and the very first only questions with options: the model
# finds out sooner what it is to compare. A run that has not by PATIENCE steps seldom does later.
SHORT_SHARE = 0.15
SHORT_WIDTH = 96
PATIENCE = 3000
CHANCE = 0.45


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="the checkpoint folder to write")
    parser.add_argument("--steps", type=int, default=0, help="training steps")
    parser.add_argument("--seconds", type=float, default=0, help="instead: stop the clock here")
    parser.add_argument("--rows", type=int, default=600_000, help="training rows")
    parser.add_argument("--tokens", type=int, default=32768, help="padded tokens in a batch")
    parser.add_argument("--workers", type=int, default=1, help="processes that make rows")
    parser.add_argument("--rate", type=float, default=7e-4, help="peak learning rate")
    parser.add_argument("--decay", type=float, default=0.1, help="weight decay")
    parser.add_argument("--drop", type=float, default=0.04, help="share of tokens made unknown")
    parser.add_argument("--smooth", type=float, default=0.0, help="label smoothing")
    parser.add_argument("--mlp-dropout", type=float, default=0.1)
    parser.add_argument("--global-every", type=int, default=2, help="layers that see whole rows")
    parser.add_argument("--easy", type=int, default=1500, help="first steps: choices only")
    parser.add_argument("--start", type=Path, help="go on from this folder's weights and tokenizer")
    parser.add_argument("--graphs", action="store_true", help="CUDA graphs")
    parser.add_argument("--vocabulary", type=int, default=5120, help="tokenizer entries")
    parser.add_argument("--corpus", type=int, default=30000, help="items for the tokenizer")
    parser.add_argument("--validate", type=int, default=5000, help="validation rows")
    parser.add_argument("--seed", type=int, default=7)
    return parser.parse_args()


Material = tuple[PreTrainedTokenizerFast, Packed, Packed]


def material(args: argparse.Namespace) -> Material:
    """Tokenizer, training rows and validation rows."""
    begun = time.monotonic()
    if args.start:
        tokenizer = PreTrainedTokenizerFast.from_pretrained(args.start / "tokenizer")
    else:
        tokenizer = train_tokenizer(Bank("train"), args.corpus, args.vocabulary, args.seed)
    print(f"tokenizer: {time.monotonic() - begun:.0f}s", flush=True)
    rows = make_rows(tokenizer, "train", args.rows, args.seed, args.workers)
    checks = make_rows(tokenizer, "validation", args.validate, args.seed, args.workers)
    print(f"rows: {time.monotonic() - begun:.0f}s, {len(rows.tokens)} tokens", flush=True)
    return tokenizer, rows, checks


def report(found: Logits) -> str:
    """Accuracy by type, for the log."""
    answers = [Answer(KINDS[kind], softmax(line), label) for kind, line, label in found]
    table = by_type(answers)
    return "  ".join(f"{kind} {row['accuracy']:.4f}" for kind, row in table.items())


def right_share(found: Logits) -> float:
    """Accuracy over all types."""
    return sum(int(line.argmax()) == label for _, line, label in found) / len(found)


def stage_at(args: argparse.Namespace, step: int, steps: int) -> int:
    """0 for short choices only, 1 for short rows, 2 for all rows."""
    if args.start:
        return 2
    return 0 if step < args.easy else 1 if step < SHORT_SHARE * steps else 2


def train(args: argparse.Namespace, trainer: Trainer, checks: Dataset) -> None:
    """Runs the schedule; the number of steps follows from --seconds where it is given."""
    steps = args.steps or 20_000
    rng = np.random.default_rng(args.seed)
    queue: list[tuple[int, torch.Tensor]] = []
    begun = marked = time.monotonic()
    total = torch.zeros((), device=trainer.data.device)
    step, stage = 0, -1
    while step < steps:
        now_at = stage_at(args, step, steps)
        if not queue or now_at != stage:
            stage = now_at
            kind = KINDS.index("choice") if stage == 0 else None
            queue = trainer.data.epoch(rng, 10_000 if stage == 2 else SHORT_WIDTH, kind)
        width, rows = queue.pop()
        total += trainer.step(width, rows, step, steps)
        step += 1
        if step == 300:
            trainer.restart_average()
        if step in (200, 500):
            total.item()  # waits for the device
            now = time.monotonic()
            pace, marked = (now - marked) / (300 if step == 500 else 200), now
            if args.seconds and step == 500:
                # Longer batches cost a little more than these short ones.
                left = args.seconds - (now - begun)
                steps = step + max(500, int(left / (pace * 1.1)))
            print(f"{pace * 1000:.1f} ms a step: {steps} steps", flush=True)
        if step % 1000 == 0 or step == steps:
            loss = total.item() / (step % 1000 or 1000)
            if loss != loss:
                raise SystemExit(f"the loss is not a number at step {step}")
            total.zero_()
            found = trainer.logits(checks)
            line = report(found)
            print(
                f"{step} {time.monotonic() - begun:.0f}s loss {loss:.4f}  {line}  "
                f"skipped {int(trainer.skipped)}",
                flush=True,
            )
            # A run that is stopped leaves its last model, without temperatures.
            save_weights(args.out, trainer.average.state_dict())
            if step == PATIENCE and right_share(found) < CHANCE:
                raise SystemExit(f"still at chance after {step} steps: try another --seed")
        if args.seconds and time.monotonic() - begun > args.seconds * 1.1:
            print(f"out of time at step {step} of {steps}", flush=True)
            break


def main() -> None:
    """Trains and writes the folder."""
    args = arguments()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    tokenizer, rows, checks = material(args)
    start_folder(args.out, tokenizer, args.mlp_dropout, args.global_every)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(args.seed)
    pad_id = int(tokenizer.pad_token_id)
    recipe = Recipe(
        args.rate,
        args.decay,
        args.drop,
        args.smooth,
        args.graphs,
        int(tokenizer.unk_token_id),
        len(tokenizer.all_special_ids),
    )
    trainer = Trainer(args.out, Dataset(rows, pad_id, args.tokens, device), recipe)
    if args.start:
        weights = load_file(args.start / "model.safetensors", device=str(device))
        trainer.model.load_state_dict({name: value.float() for name, value in weights.items()})
        trainer.restart_average()
    count = sum(weight.numel() for weight in trainer.model.parameters())
    print(f"{count} parameters on {device}", flush=True)
    held = Dataset(checks, pad_id, args.tokens, device)
    train(args, trainer, held)
    found = trainer.logits(held)
    print(f"validation, {len(found)} rows: {report(found)}", flush=True)
    config = agent_config()
    config["temperature"], config["temperature_by_options"] = fit_temperatures(found)
    write_config(args.out, config)
    save_weights(args.out, trainer.average.state_dict())


if __name__ == "__main__":
    main()

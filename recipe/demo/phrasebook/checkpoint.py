"""Writes a folder in Laya's on-disk format, and makes the model from it with Laya's own code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from laya.common import build_model
from safetensors.torch import save_file
from transformers import ModernBertConfig, PreTrainedTokenizerFast

from .rows import HEAD_MAX_LEN, MAX_LEN

HIDDEN = 256
LAYERS = 6
HEAD_LAYERS = 1


def agent_config() -> dict[str, Any]:
    """The start of rl_agent_config.json; temperatures come after training."""
    return {
        "encoder": "omni-jev-demo",
        "head_layers": HEAD_LAYERS,
        "max_len": MAX_LEN,
        "head_max_len": HEAD_MAX_LEN,
        # Two outputs of the act head, which this checkpoint does not train.
        "act_costs": {"escalate": 1.0},
        "amp_dtype": "fp16",
        "temperature": [1.0, 1.0, 1.0],
        "temperature_by_options": {},
    }


def start_folder(
    folder: Path,
    tokenizer: PreTrainedTokenizerFast,
    mlp_dropout: float = 0.1,
    global_every: int = 2,
) -> None:
    """Writes everything but the weights.

    Every ``global_every``-th layer sees the whole row, the others 64 tokens to either side.
    """
    (folder / "encoder").mkdir(parents=True, exist_ok=True)
    config = ModernBertConfig(
        vocab_size=len(tokenizer),
        hidden_size=HIDDEN,
        intermediate_size=HIDDEN * 3 // 2,
        num_hidden_layers=LAYERS,
        num_attention_heads=HIDDEN // 64,
        max_position_embeddings=MAX_LEN,
        global_attn_every_n_layers=global_every,
        local_attention=128,
        attention_dropout=0.0,
        embedding_dropout=0.1,
        mlp_dropout=mlp_dropout,
        pad_token_id=tokenizer.pad_token_id,
        cls_token_id=tokenizer.cls_token_id,
        sep_token_id=tokenizer.sep_token_id,
        bos_token_id=tokenizer.cls_token_id,
        eos_token_id=tokenizer.sep_token_id,
    )
    config.save_pretrained(folder / "encoder")
    tokenizer.save_pretrained(folder / "tokenizer")
    _name_tokenizer_class(folder / "tokenizer" / "tokenizer_config.json")
    write_config(folder, agent_config())


def _name_tokenizer_class(path: Path) -> None:
    """Laya rewrites a tokenizer_config.json that names another class; this one is left alone."""
    config = json.loads(path.read_text(encoding="utf-8"))
    config["tokenizer_class"] = "PreTrainedTokenizerFast"
    for key in ("backend", "is_local", "local_files_only"):
        config.pop(key, None)
    path.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def write_config(folder: Path, config: dict[str, Any]) -> None:
    """Writes rl_agent_config.json."""
    text = json.dumps(config, indent=2) + "\n"
    (folder / "rl_agent_config.json").write_text(text, encoding="utf-8")


def new_model(folder: Path) -> torch.nn.Module:
    """A fresh model of the folder's shape, with random weights."""
    model: torch.nn.Module = build_model(agent_config(), str(folder / "encoder"), pretrained=False)
    return model


def save_weights(folder: Path, weights: dict[str, torch.Tensor]) -> None:
    """Writes model.safetensors in fp16."""
    halves = {name: value.detach().cpu().half().contiguous() for name, value in weights.items()}
    save_file(halves, folder / "model.safetensors", metadata={"format": "pt"})

"""Makes a checkpoint in Laya's format, small enough for a unit test: random, but decided.

ModernBERT with two layers of 32 numbers, a word tokenizer trained on the words below, the head as
laya builds it. The scorer's last layer is scaled up, since a random network answers 1/k to all.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

WORDS = (
    "the a is it please refund charge duplicate parcel came late box open team billing delivery "
    "other noul choice score question level no yes statement holds does not customer ask for angry "
    "calm annoyed furious writer which should read this money and its way did how thank you so much"
)
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WINDOW = 128
HIDDEN = 32


def make(
    folder: Path,
    *,
    seed: int = 7,
    window: int = WINDOW,
    encoder: Mapping[str, Any] = {},
    **config: Any,
) -> Path:
    """Write a checkpoint; `encoder` and `config` override settings of the encoder and of laya."""
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = _write_tokenizer(folder / "tokenizer")
    _write_encoder(folder / "encoder", vocabulary, window, encoder)
    settings: dict[str, Any] = {
        "encoder": "tiny-modernbert",
        "head_layers": 1,
        "max_len": window,
        "head_max_len": 64,
        "act_costs": {"ask": 0.1},
        "temperature": [1.0, 1.0, 1.0],
        "temperature_by_options": {"choice:3-5": 1.3},
        "amp_dtype": "fp16",
    }
    settings.update(config)
    (folder / "rl_agent_config.json").write_text(json.dumps(settings))
    _write_weights(folder, settings, seed)
    return folder


def _write_tokenizer(folder: Path) -> int:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=400, special_tokens=SPECIAL, show_progress=False)
    tokenizer.train_from_iterator([WORDS] * 3, trainer)
    folder.mkdir(exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    names = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
    settings = {
        # Without it laya would rewrite this file when it loads the folder.
        "tokenizer_class": "PreTrainedTokenizerFast",
        **dict(zip(names, SPECIAL, strict=True)),
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return int(tokenizer.get_vocab_size())


def _write_encoder(folder: Path, vocabulary: int, window: int, encoder: Mapping[str, Any]) -> None:
    from transformers import ModernBertConfig

    settings: dict[str, Any] = {
        "vocab_size": vocabulary,
        "hidden_size": HIDDEN,
        "intermediate_size": 2 * HIDDEN,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "max_position_embeddings": window,
        "local_attention": 32,
        "initializer_range": 0.4,
        "initializer_cutoff_factor": 3.0,
        "pad_token_id": 0,
        "cls_token_id": 2,
        "sep_token_id": 3,
        "bos_token_id": 2,
        "eos_token_id": 3,
    }
    ModernBertConfig(**(settings | dict(encoder))).save_pretrained(folder)


def _write_weights(folder: Path, settings: dict[str, Any], seed: int) -> None:
    import torch
    from laya.common import DecisionModel
    from safetensors.torch import save_file
    from transformers import AutoConfig, AutoModel

    torch.manual_seed(seed)
    # Not laya's `build_model`: from 0.4 on it leaves the weights as they come out of memory.
    encoder = AutoModel.from_config(AutoConfig.from_pretrained(folder / "encoder"))
    model = DecisionModel(encoder, settings["head_layers"], len(settings["act_costs"]) + 1)
    with torch.no_grad():
        model.scorer[3].weight.mul_(14.0)
    weights = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    save_file(weights, str(folder / "model.safetensors"))

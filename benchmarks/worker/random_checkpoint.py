"""A random checkpoint of a published one's shape: as large and as slow, and knowing nothing.

    python benchmarks/worker/random_checkpoint.py FOLDER [--shape english|multilingual]

The tokenizer is the demo checkpoint's. The last layer is scaled up, so that the answers differ.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

DEMO = Path(__file__).resolve().parents[2] / "recipe" / "demo" / "checkpoint"

SHAPES: dict[str, dict[str, Any]] = {
    "english": {
        "window": 512,
        "hidden_size": 1024,
        "intermediate_size": 2624,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "vocab_size": 50368,
    },
    "multilingual": {
        "window": 1024,
        "hidden_size": 768,
        "intermediate_size": 1152,
        "num_hidden_layers": 22,
        "num_attention_heads": 12,
        "vocab_size": 256000,
    },
}


def make(folder: Path, shape: str) -> None:
    """Write the checkpoint, with weights in half precision as the published ones have them."""
    import torch
    from laya.common import build_model
    from safetensors.torch import save_file
    from transformers import ModernBertConfig

    sizes = dict(SHAPES[shape])
    window = sizes.pop("window")
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copytree(DEMO / "tokenizer", folder / "tokenizer", dirs_exist_ok=True)
    demo = json.loads((DEMO / "encoder" / "config.json").read_text())
    specials = {name: demo[name] for name in demo if name.endswith("_token_id")}
    ModernBertConfig(**sizes, **specials, max_position_embeddings=8192).save_pretrained(
        folder / "encoder"
    )
    config = {
        "encoder": f"random-{shape}",
        "head_layers": 2,
        "max_len": window,
        "head_max_len": 192,
        "act_costs": {"escalate": 1.0},
        "temperature": [1.0, 1.0, 1.0],
        "amp_dtype": "fp16",
    }
    (folder / "rl_agent_config.json").write_text(json.dumps(config))
    torch.manual_seed(7)
    model = build_model(config, encoder_dir=str(folder / "encoder"), pretrained=False)
    with torch.no_grad():
        model.scorer[3].weight.mul_(14.0)
    weights = {name: each.half().contiguous() for name, each in model.state_dict().items()}
    save_file(weights, str(folder / "model.safetensors"))


def main() -> None:
    """Make one."""
    parser = argparse.ArgumentParser(description="Make a random checkpoint of a published shape.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--shape", choices=SHAPES, default="english")
    arguments = parser.parse_args()
    make(arguments.folder, arguments.shape)
    print(arguments.folder)


if __name__ == "__main__":
    main()

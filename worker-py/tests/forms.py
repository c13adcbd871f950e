"""The forms of model that the network is held against, and rows for them."""

from typing import Any, Final

import numpy as np

from omni_jev_worker.model import Encoded

WINDOW: Final = 160

FORMS: Final[dict[str, dict[str, Any]]] = {
    "as laya's": {},
    "no layers in the head": {"head_layers": 0},
    "two layers in the head": {"head_layers": 2},
    "biases everywhere": {
        "encoder": {"attention_bias": True, "mlp_bias": True, "norm_bias": True},
    },
    "windows in every layer but the first": {
        "encoder": {"num_hidden_layers": 3, "global_attn_every_n_layers": 9, "local_attention": 8},
    },
    "one acts alone": {"act_costs": {}},
}


def rows(*sizes: tuple[int, int], seed: int = 1) -> Encoded:
    """Make rows of so many tokens with so many options each."""
    rng = np.random.default_rng(seed)
    items = []
    for length, options in sizes:
        ids = rng.integers(5, 60, length).tolist()
        markers = sorted(rng.choice(np.arange(1, length), options, replace=False).tolist())
        items.append({"ids": ids, "markers": markers, "qtype": int(rng.integers(3))})
    return Encoded(("q",), {}, items, (len(items),), ())

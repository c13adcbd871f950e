"""What an artifact of this engine says of its network, beside the numbers."""

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Final

from omni_jev_worker import weights
from omni_jev_worker.engines.forward import Unavailable
from omni_jev_worker.network.parts import (
    FULL,
    SLIDING,
    Linear,
    Norm,
    Parts,
)

FORM: Final = "network.json"
NUMBERS: Final = "weights.safetensors"

ACTIVATIONS: Final = ("gelu", "relu")
_MOST_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class Form:
    """The sizes of a network, and the names of its functions."""

    kinds: tuple[str, ...]
    """Of each layer of the encoder: `FULL` or `SLIDING`."""
    reach: int
    """How far a token sees in a sliding layer, to either side."""
    heads: int
    head_layers: int
    head_heads: int
    act: str
    head_act: str
    eps: float
    """Of every norm but laya's own."""
    head_eps: float
    """Of the norms of laya's head and of its scorer."""
    half: bool
    """Whether matrices are float16, and what is multiplied with them."""

    def write(self, folder: Path) -> None:
        """Write it."""
        (folder / FORM).write_text(json.dumps(asdict(self), indent=1) + "\n")


def read(folder: Path) -> Form:
    """Read it as something that anyone may have written. Raises `ValueError`."""
    with (folder / FORM).open("rb") as file:
        data = file.read(_MOST_BYTES + 1)
    found = json.loads(data) if len(data) <= _MOST_BYTES else None
    if not isinstance(found, dict) or set(found) != {each.name for each in fields(Form)}:
        raise ValueError(f"{FORM} is not of a known form")
    kinds = found["kinds"]
    if not isinstance(kinds, list) or not kinds or not set(map(str, kinds)) <= {FULL, SLIDING}:
        raise ValueError(f"{FORM} has layers of an unknown kind")
    for name in ("reach", "heads", "head_layers", "head_heads"):
        if type(found[name]) is not int or not 0 <= found[name] <= 65536:
            raise ValueError(f"{FORM} has no number as `{name}`")
    if not {found["act"], found["head_act"]} <= set(ACTIVATIONS):
        raise ValueError(f"{FORM} names an unknown function")
    if not all(isinstance(found[name], float) for name in ("eps", "head_eps")):
        raise ValueError(f"{FORM} has no number as `eps`")
    return Form(**{**found, "kinds": tuple(kinds), "half": found["half"] is True})


def inspect(folder: Path) -> None:
    """Check both files without running them. Raises `ValueError`."""
    try:
        read(folder)
        weights.tensor_names(folder / NUMBERS)
    except weights.Damaged as damage:
        raise ValueError(f"{NUMBERS} {damage}") from None
    except (RecursionError, TypeError) as fault:
        raise ValueError(f"{FORM} cannot be read ({type(fault).__name__})") from None


def form_of(parts: Parts, *, half: bool) -> Form:
    """Describe a network. Raises `Unavailable` for one that this engine does not compute."""
    names = [str(getattr(act, "__name__", "")) for act in (parts.act, parts.head_act)]
    if not set(names) <= set(ACTIVATIONS):
        raise Unavailable("its activation is not one that this engine has")
    head = parts.head[0].attention_norm if parts.head else parts.decision.norm
    return Form(
        kinds=parts.kinds,
        reach=parts.reach,
        heads=parts.heads,
        head_layers=len(parts.head),
        head_heads=parts.head_heads,
        act=names[0],
        head_act=names[1],
        eps=float(parts.final_norm.eps),
        head_eps=float(head.eps),
        half=half,
    )


def numbers_of(parts: Parts, *, half: bool) -> dict[str, Any]:
    """Give the network's arrays by name; matrices in half precision where that is asked for."""
    found: dict[str, Any] = {"embedding": parts.embedding, "types": parts.types}
    _norm(found, "embedding_norm", parts.embedding_norm)
    _norm(found, "final_norm", parts.final_norm)
    stacks: Any = {"layer": parts.layers, "head": parts.head}
    for prefix, layers in stacks.items():
        for at, layer in enumerate(layers):
            for name, part in layer._asdict().items():
                _any(found, f"{prefix}{at}.{name}", part)
    for name, part in parts.decision._asdict().items():
        _any(found, f"decision.{name}", part)
    arrays = {name: each.float().numpy() for name, each in found.items()}
    if half:
        arrays = {
            name: each.astype("float16") if _is_matrix(name) else each
            for name, each in arrays.items()
        }
    return arrays


def _is_matrix(name: str) -> bool:
    """Say whether half precision is enough: the last step stays exact, as in `regions`."""
    small = ("decision.score", "decision.act")
    return name.endswith(".weight") and "norm" not in name and not name.startswith(small)


def _any(found: dict[str, Any], name: str, part: Norm | Linear | None) -> None:
    if isinstance(part, Norm):
        _norm(found, name, part)
    elif part is not None:
        found[f"{name}.weight"] = part.weight
        if part.bias is not None:
            found[f"{name}.bias"] = part.bias


def _norm(found: dict[str, Any], name: str, norm: Norm) -> None:
    found[f"{name}.weight"] = norm.weight
    if norm.bias is not None:
        found[f"{name}.bias"] = norm.bias

"""The training step: eager, or captured per batch shape as a CUDA graph and replayed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.nn import functional

from .checkpoint import new_model
from .dataset import Batch, Dataset
from .measure import Array

Logits = list[tuple[int, Array, int]]
_KEEP = 0.998
_WARM_STEPS = 400


@dataclass(frozen=True)
class Recipe:
    """Settings of the optimisation."""

    rate: float
    decay: float
    drop: float
    smooth: float
    graphs: bool
    unknown_id: int
    special_ids: int


def smooth_loss(
    logits: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor, smooth: float
) -> torch.Tensor:
    """Cross-entropy with a share ``smooth`` of the target spread over the row's own options."""
    logs = functional.log_softmax(logits, -1)
    right = -logs.gather(1, labels[:, None]).squeeze(1)
    spread = -(logs * mask).sum(-1) / mask.sum(-1)
    return ((1 - smooth) * right + smooth * spread).mean()


class Trainer:
    """The model, its running average (which is what gets saved) and the optimizer."""

    def __init__(self, folder: Path, data: Dataset, recipe: Recipe) -> None:
        self.data = data
        self.recipe = recipe
        device = data.device
        self.model = new_model(folder).to(device).train()
        self.average = new_model(folder).to(device).eval()
        self.restart_average()
        named = [
            (name, weight)
            for name, weight in self.model.named_parameters()
            if not name.startswith("act_head.")
        ]
        self._weights: list[torch.Tensor] = [weight for _, weight in named]
        self._rate = torch.tensor(recipe.rate, device=device)
        self.skipped = torch.zeros((), dtype=torch.long, device=device)
        """Batches whose gradients were not finite."""
        cuda = device.type == "cuda"
        self._optimizer = torch.optim.AdamW(
            [
                {"params": [w for w in self._weights if w.ndim > 1], "weight_decay": recipe.decay},
                {"params": [w for w in self._weights if w.ndim < 2], "weight_decay": 0.0},
            ],
            lr=self._rate,
            betas=(0.9, 0.98),
            fused=cuda,
            capturable=cuda,
        )
        averages = dict(self.average.named_parameters())
        self._averages: list[torch.Tensor] = [averages[name] for name, _ in named]
        self._graphs: dict[int, tuple[torch.cuda.CUDAGraph, torch.Tensor, torch.Tensor]] = {}

    def restart_average(self) -> None:
        """The average forgets the past."""
        self.average.load_state_dict(self.model.state_dict())

    def step(self, width: int, rows: torch.Tensor, step: int, steps: int) -> torch.Tensor:
        """One update; returns the loss, on the device."""
        warm = min(1.0, (step + 1) / _WARM_STEPS)
        share = 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * step / steps))
        self._rate.fill_(self.recipe.rate * warm * share)
        if not self.recipe.graphs:
            return self._update(width, rows).detach()
        if width not in self._graphs:
            self._graphs[width] = self._capture(width, rows)
        graph, place, loss = self._graphs[width]
        place.copy_(rows)
        graph.replay()
        return loss.clone()

    def _capture(
        self, width: int, rows: torch.Tensor
    ) -> tuple[torch.cuda.CUDAGraph, torch.Tensor, torch.Tensor]:
        place = rows.clone()
        side: torch.cuda.Stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                self._update(width, place)
        torch.cuda.current_stream().wait_stream(side)
        self._optimizer.zero_grad(set_to_none=True)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            loss = self._update(width, place).detach()
        return graph, place, loss

    def _update(self, width: int, rows: torch.Tensor) -> torch.Tensor:
        batch, labels = self.data.gather(width, rows)
        batch["input_ids"] = self._drop_tokens(batch["input_ids"])
        loss = smooth_loss(
            self.forward(self.model, batch), labels, batch["marker_mask"], self.recipe.smooth
        )
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        self._clip()
        self._optimizer.step()
        with torch.no_grad():
            torch._foreach_lerp_(self._averages, self._weights, 1 - _KEEP)
        return loss

    def _clip(self) -> None:
        """Gradients of norm 1 at the most; a batch whose gradients are not finite changes nothing.

        Without a branch, which a CUDA graph could not hold.
        """
        gradients = [weight.grad for weight in self._weights if weight.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients)
        finite = torch.isfinite(norm)
        scale = torch.where(finite, (1.0 / (norm + 1e-6)).clamp(max=1.0), 0.0)
        for gradient in gradients:
            torch.nan_to_num_(gradient, nan=0.0, posinf=0.0, neginf=0.0)
        torch._foreach_mul_(gradients, scale)
        self.skipped += ~finite

    def _drop_tokens(self, ids: torch.Tensor) -> torch.Tensor:
        """Makes some ordinary tokens unknown, so that no single word decides."""
        drop = torch.rand(ids.shape, device=ids.device) < self.recipe.drop
        return ids.masked_fill(drop & (ids >= self.recipe.special_ids), self.recipe.unknown_id)

    def forward(self, model: torch.nn.Module, batch: Batch) -> torch.Tensor:
        """Option logits."""
        cuda = self.data.device.type == "cuda"
        with torch.autocast(
            self.data.device.type, torch.bfloat16, enabled=cuda, cache_enabled=False
        ):
            logits: torch.Tensor = model(**batch)[0]
        return logits.float()

    @torch.no_grad()
    def logits(self, data: Dataset) -> Logits:
        """The averaged model's logits for a data set, with question types and labels."""
        found: Logits = []
        for width, rows in data.everything():
            batch, labels = data.gather(width, rows)
            values = self.forward(self.average, batch).double().cpu().numpy()
            counts = batch["marker_mask"].sum(-1).tolist()
            kinds = batch["qtype"].tolist()
            for line, count, kind, label in zip(
                values, counts, kinds, labels.tolist(), strict=True
            ):
                found.append((kind, line[:count], label))
        return found

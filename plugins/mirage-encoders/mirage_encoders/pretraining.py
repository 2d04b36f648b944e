"""Auxiliary supervised training of an encoder: quantiles of the wait if submitted now.

The Mirage paper, too, trains its transformer on waits before reinforcement learning begins. The head that is
trained here is thrown away; what remains is an encoder that knows how long the queue is.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from mirage.plugin import Table

LEVELS = (0.1, 0.25, 0.5, 0.75, 0.9)
ROWS_AT_ONCE = 8_192
UNIT = 12 * 3_600.0
"""Targets are in twelve hours."""


@dataclass(frozen=True, slots=True)
class Pretraining:
    """How long and how fast."""

    patience: int = 3
    """Epochs without a better validation after which it ends."""
    rate: float = 5e-4
    decay: float = 0.1
    batch: int = 512


def pretrain(
    encoder: nn.Module, tables: tuple[Table, Table | None], epochs: int, seed: int, options: Pretraining
) -> tuple[int, dict[str, list[float]]]:
    """Train ``encoder`` in place on the first table; returns the epochs it took and its curves, in hours.

    With a second table its best state by that is kept; without one it learns for all ``epochs``.
    """
    model = nn.Sequential(encoder, nn.LazyLinear(len(LEVELS))).to(next(encoder.parameters()).device)
    table, validation = tables
    features, targets = _examples(table)
    model(features[:2].to(next(encoder.parameters()).device))
    optimiser = torch.optim.AdamW(model.parameters(), options.rate, weight_decay=options.decay)
    generator = torch.Generator().manual_seed(seed)
    curves: dict[str, list[float]] = {"pretraining_training": [], "pretraining_validation": []}
    best, kept = 0, deepcopy(encoder.state_dict())
    for epoch in range(1, epochs + 1):
        batches = torch.split(torch.randperm(len(targets), generator=generator), options.batch)
        losses = [_learn(model, optimiser, features[rows], targets[rows]) for rows in batches]
        curves["pretraining_training"].append(12 * float(np.mean(losses)))
        if validation is not None:
            curves["pretraining_validation"].append(12 * _validated(model, validation))
        if validation is None or curves["pretraining_validation"][-1] <= min(curves["pretraining_validation"]):
            best, kept = epoch, deepcopy(encoder.state_dict())
        if epoch - best >= options.patience:
            break
    encoder.load_state_dict(kept)
    return best, curves


def _learn(model: nn.Module, optimiser: torch.optim.Optimizer, features: Tensor, targets: Tensor) -> float:
    model.train()
    device = next(model.parameters()).device
    loss = _pinball(model(features.to(device)), targets.to(device))
    optimiser.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    optimiser.step()
    return float(loss.detach())


def _examples(table: Table) -> tuple[Tensor, Tensor]:
    targets = torch.from_numpy((table.x / UNIT).astype(np.float32).ravel())
    return torch.from_numpy(table.features.reshape(-1, table.schema.size)), targets


def _pinball(said: Tensor, truth: Tensor) -> Tensor:
    """Mean pinball loss of quantiles, shape (batch, levels), against (batch,) (Koenker & Bassett, 1978)."""
    levels = torch.tensor(LEVELS, device=said.device)
    over = truth.unsqueeze(1) - said
    return torch.maximum(levels * over, (levels - 1) * over).mean()


def _validated(model: nn.Module, table: Table) -> float:
    model.eval()
    device = next(model.parameters()).device
    features, targets = _examples(table)
    with torch.no_grad():
        parts = zip(torch.split(features, ROWS_AT_ONCE), torch.split(targets, ROWS_AT_ONCE), strict=True)
        losses = [float(_pinball(model(f.to(device)), t.to(device))) * len(t) for f, t in parts]
    return sum(losses) / len(targets)

"""Several networks trained on the same handovers with different seeds, used as one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from mirage_encoders.judging import mean_cost

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from mirage.plugin import Table, Weights

CANDIDATES = 81
"""Margins tried."""


class Council(nn.Module):
    """The mean of the members' scores, and a margin in favour of submitting."""

    def __init__(self, members: Sequence[nn.Module], margin: float = 0.0) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)
        self.margin = nn.Buffer(torch.tensor([0.0, margin]))

    def forward(self, features: Tensor) -> Tensor:
        """Shape (batch, 2): hold, submit."""
        return torch.stack([member(features) for member in self.members]).mean(dim=0) + self.margin


def best_margin(said: NDArray[np.float32], table: Table, weights: Weights) -> float:
    """Margin to add to scores of submitting for the lowest cost on handovers outside the training set.

    ``said`` are scores of (hold, submit), shape (E, G, 2).
    A network trained on the past of a growing queue submits late; the margin corrects this. Of equally good
    margins the smallest is taken.
    """
    lacking = said[:, :-1, 0] - said[:, :-1, 1]
    candidates: list[float] = [0.0, *np.quantile(lacking, np.linspace(0, 1, CANDIDATES)).tolist()]
    costs = [mean_cost(said + np.array([0, margin], dtype=np.float32), table, weights) for margin in candidates]
    least = min(costs)
    return min((margin for margin, cost in zip(candidates, costs, strict=True) if cost <= least), key=abs)

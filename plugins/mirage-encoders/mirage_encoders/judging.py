"""Exact result of a policy on a table: where it first submits, and the return there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from mirage.plugin import Weights

if TYPE_CHECKING:
    from torch import nn

    from mirage.plugin import Table

Float32 = NDArray[np.float32]
Int64 = NDArray[np.int64]

ROWS_AT_ONCE = 8_192
EQUAL_WEIGHTS = Weights()


@dataclass(frozen=True, slots=True)
class Leads:
    """Seconds before the predecessor's end within which a policy decides."""

    least: int = 0
    """From here on it holds no more."""
    most: int = 1 << 40
    """Before this it never submits."""


NO_LEADS = Leads()


def scores(network: nn.Module, table: Table) -> Float32:
    """Scores of (hold, submit) at every point of a table, shape (E, G, 2). The network is left in evaluation."""
    network.eval()
    device = next(network.parameters()).device
    flat = torch.from_numpy(table.features.reshape(-1, table.schema.size))
    with torch.no_grad():
        parts = [network(part.to(device)).cpu().numpy() for part in torch.split(flat, ROWS_AT_ONCE)]
    return np.concatenate(parts).astype(np.float32).reshape(*table.submit.shape, 2)


def first_submission(said: Float32, table: Table, leads: Leads = NO_LEADS) -> Int64:
    """The point at which each handover is submitted, shape (E,), for scores of shape (E, G, 2)."""
    lead = table.end[:, None] - table.submit
    submit = (said[..., 1] >= said[..., 0]) & (lead <= leads.most) | (lead <= leads.least)
    submit[:, -1] = True
    return np.asarray(submit.argmax(axis=1), dtype=np.int64)


def mean_cost(said: Float32, table: Table, weights: Weights = EQUAL_WEIGHTS, leads: Leads = NO_LEADS) -> float:
    """What a handover costs in the mean, weighted hours; with equal weights the mean of |x|."""
    return -float(table.returns_of(first_submission(said, table, leads), weights).mean())

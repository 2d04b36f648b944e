"""Both agents with gradients: their random actions and the likelihood of these."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from mirage.allocation.ddl.das.sight import HISTORY
from mirage.training.das.networks import Critic, OrderingNet, PlacementNet, Shape, Waiting
from mirage.training.das.processes import (
    log_multinormal,
    log_normal,
    multinormal_entropy,
    normal_entropy,
    posterior,
    walk,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from mirage.allocation.ddl.das.sight import Sight


class Asked(NamedTuple):
    """Observation of the placement agent: (B, K, ...) of tasks to place, then (B, H, ...) of history."""

    task: Tensor
    node: Tensor
    pair: Tensor
    mask: Tensor
    """(B, K)"""
    held: Tensor
    """(B, H, N)"""
    felt: Tensor
    """(B, H)"""


class Affinities(NamedTuple):
    """The placement agent's distributions."""

    mean: Tensor
    """(B, K, N)"""
    factor: Tensor
    """(B, K, N, N) Lower Cholesky factor of the covariance."""
    patience: Tensor
    """(B, K)"""


def waiting_of(sights: Sequence[Sight]) -> Waiting:
    """Pad the observations of the ordering agent."""
    longest = max(sight.waiting for sight in sights)
    base, task = (
        _padded([getattr(sight, name)[: sight.waiting] for sight in sights], longest) for name in ("base", "task")
    )
    mask = _padded([np.ones(sight.waiting) for sight in sights], longest)
    node = torch.as_tensor(np.stack([sight.node for sight in sights]))
    return Waiting(base, task, node, mask)


def asked_of(sights: Sequence[Sight], chosen: Sequence[NDArray[np.int64]]) -> Asked:
    """Pad the tasks to place, and the history."""
    most = max(1, *(len(places) for places in chosen)) if len(chosen) > 1 else max(1, len(chosen[0]))
    held = _padded([sight.held for sight in sights], HISTORY)
    felt = _padded([sight.felt for sight in sights], HISTORY)
    parts = {}
    for name in ("task", "pair"):
        now = _padded([getattr(sight, name)[places] for sight, places in zip(sights, chosen, strict=True)], most)
        past = _padded([getattr(sight, name)[sight.waiting :] for sight in sights], HISTORY)
        parts[name] = torch.cat([now, past], dim=1)
    mask = _padded([np.ones(len(places)) for places in chosen], most)
    node = torch.as_tensor(np.stack([sight.node for sight in sights]))
    return Asked(parts["task"], node, parts["pair"], mask, held, felt)


def _padded(arrays: Sequence[NDArray[np.floating]], length: int) -> Tensor:
    padded = np.zeros((len(arrays), length, *arrays[0].shape[1:]), dtype=np.float32)
    for place, array in enumerate(arrays):
        padded[place, : len(array)] = array
    return torch.as_tensor(padded)


@dataclass(frozen=True, slots=True)
class Drawn:
    """Log-densities (B, ...) of drawn actions, and the mean entropy of the distributions."""

    scores: Tensor
    affinity: Tensor
    patience: Tensor
    entropy: Tensor


class Agents(nn.Module):
    """The ordering agent, the placement agent, and the critic, which sees the input of both."""

    def __init__(self, shape: Shape, switch: NDArray[np.int32]) -> None:
        super().__init__()
        self.shape = shape
        self.ordering, self.placement = OrderingNet(shape), PlacementNet(shape)
        self.critic = Critic(shape.width)
        self.switch = nn.Buffer(torch.as_tensor(switch))

    def scores(self, seen: Waiting) -> tuple[Tensor, Tensor]:
        """Mean scores (B, J) and their standard deviation."""
        mean = self.ordering(seen.base, seen.task, seen.node, seen.mask)
        return mean, torch.exp(self.ordering.spread)

    def affinities(self, asked: Asked) -> Affinities:
        """The distributions of the affinities and of the timeout."""
        count = asked.mask.shape[1]
        mean, labels, likeness, patience = self.placement(asked.task, asked.node, asked.pair)
        own = torch.exp(2 * self.placement.own_spread) * torch.eye(mean.shape[-1])
        if not self.shape.walks:
            spread = torch.exp(2 * self.placement.amplitude) * torch.eye(mean.shape[-1]) + own
            factor = torch.linalg.cholesky(spread).expand(*mean[:, :count].shape, -1)
            return Affinities(mean[:, :count], factor, patience[:, :count])
        vectors = walk(labels, likeness, self.switch, torch.sigmoid(self.placement.decay))
        past = asked.held.unsqueeze(-2) @ vectors[:, count:]
        shift, covariance = posterior(
            vectors[:, :count], past.squeeze(-2), asked.felt, torch.exp(self.placement.noise)
        )
        factor = torch.linalg.cholesky(covariance + own)
        return Affinities(mean[:, :count] + shift, factor, patience[:, :count])

    def value(self, seen: Waiting, group: Tensor) -> Tensor:
        """Estimated cost to go (B,)."""
        value: Tensor = self.critic(seen, group)
        return value

    def densities(self, seen: Waiting, scores: Tensor, asked: Asked, affinity: Tensor, patience: Tensor) -> Drawn:
        """Present log-likelihood of drawn actions."""
        mean, spread = self.scores(seen)
        found = self.affinities(asked)
        calm = torch.exp(self.placement.patience_spread)
        factors = multinormal_entropy(found.factor) * asked.mask
        entropy = normal_entropy(spread) + normal_entropy(calm) + factors.sum() / asked.mask.sum().clamp(min=1)
        return Drawn(
            log_normal(scores, mean, spread),
            log_multinormal(affinity, found.mean, found.factor),
            log_normal(patience, found.patience, calm),
            entropy,
        )

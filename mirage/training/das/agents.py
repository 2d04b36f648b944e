"""Both agents with gradients: their random actions, the likelihood of these, and the agents as ONNX.

Affinities are a random-walk Gaussian process. The paper prints
log pi = -1/2 [(a - mu)^2 + N log 2 pi] - log |Sigma|: without Sigma^-1 in the quadratic term and with log |Sigma|
instead of its half. That is no density of a normal distribution (it does not integrate to 1, and its gradient
drives Sigma to 0); ours are the true ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from mirage.allocation.ddl.das.kernel import BEYOND, STEPS
from mirage.allocation.ddl.das.observation import HISTORY, TASK
from mirage.allocation.ddl.das.policies import ORDERING, PLACEMENT, Process
from mirage.allocation.ddl.kernel.das_seeing import NODE, PAIR
from mirage.training.checkpoint import exported
from mirage.training.das.networks import DasCritic, DasShape, OrderingInput, OrderingNet, PlacementNet

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from mirage.allocation.ddl.das.observation import DasObservation

LOG_2PI = math.log(2 * math.pi)


def walk(labels: Tensor, likeness: Tensor, switch: Tensor, decay: Tensor, steps: int = STEPS) -> Tensor:
    """As ``mirage.allocation.ddl.das.kernel.walk``: labels (B, J, N, C), likeness (B, J, N, d), switch (N,)."""
    near = switch[:, None] == switch[None, :]
    closeness = BEYOND + (1 - BEYOND) * near.to(labels.dtype)
    step = closeness * (likeness @ likeness.transpose(-1, -2))
    step = step / step.sum(dim=-1, keepdim=True)
    found = [labels]
    for _ in range(steps - 1):
        found.append(torch.sqrt(decay) * (step @ found[-1]))
    return torch.cat(found, dim=-1)


def posterior(vectors: Tensor, seen: Tensor, values: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Means (B, J, N) and covariances (B, J, N, N) at vectors (B, J, N, Q), given values (B, H) at (B, H, Q).

    Rows of zeros in ``seen`` with values of zero have no effect: so histories of unequal length are padded.
    """
    eye = torch.eye(seen.shape[-1], dtype=seen.dtype)
    system = seen.transpose(-1, -2) @ seen + noise * eye
    weights = torch.linalg.solve(system, seen.transpose(-1, -2) @ values.unsqueeze(-1))
    mean = (vectors @ weights.unsqueeze(1)).squeeze(-1)
    inverse = torch.linalg.inv(system).unsqueeze(1)
    covariance = noise * (vectors @ inverse @ vectors.transpose(-1, -2))
    return mean, covariance


def log_normal(values: Tensor, mean: Tensor, spread: Tensor) -> Tensor:
    """Log-density of independent normal numbers, elementwise; ``spread`` is the standard deviation."""
    return -0.5 * (((values - mean) / spread) ** 2 + LOG_2PI) - torch.log(spread)


def log_multinormal(values: Tensor, mean: Tensor, factor: Tensor) -> Tensor:
    """Log-density of vectors (..., N): -1/2 [(a - mu)^T Sigma^-1 (a - mu) + N log 2 pi + log |Sigma|].

    ``factor`` (..., N, N) is Sigma's lower Cholesky factor.
    """
    off = torch.linalg.solve_triangular(factor, (values - mean).unsqueeze(-1), upper=False).squeeze(-1)
    half = torch.log(torch.diagonal(factor, dim1=-2, dim2=-1)).sum(dim=-1)
    density: Tensor = -0.5 * ((off**2).sum(dim=-1) + values.shape[-1] * LOG_2PI) - half
    return density


def multinormal_entropy(factor: Tensor) -> Tensor:
    """Entropy (...) of a normal distribution over vectors by its lower Cholesky factor."""
    half = torch.log(torch.diagonal(factor, dim1=-2, dim2=-1)).sum(dim=-1)
    return 0.5 * factor.shape[-1] * (1 + LOG_2PI) + half


def normal_entropy(spread: Tensor) -> Tensor:
    """Entropy of one normal number."""
    return 0.5 * (1 + LOG_2PI) + torch.log(spread)


class PlacementInput(NamedTuple):
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


def waiting_of(sights: Sequence[DasObservation]) -> OrderingInput:
    """Pad the observations of the ordering agent."""
    longest = max(sight.waiting for sight in sights)
    base, task = (
        _padded([getattr(sight, name)[: sight.waiting] for sight in sights], longest) for name in ("base", "task")
    )
    mask = _padded([np.ones(sight.waiting) for sight in sights], longest)
    node = torch.as_tensor(np.stack([sight.node for sight in sights]))
    return OrderingInput(base, task, node, mask)


def asked_of(sights: Sequence[DasObservation], chosen: Sequence[NDArray[np.int64]]) -> PlacementInput:
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
    return PlacementInput(parts["task"], node, parts["pair"], mask, held, felt)


def _padded(arrays: Sequence[NDArray[np.floating]], length: int) -> Tensor:
    padded = np.zeros((len(arrays), length, *arrays[0].shape[1:]), dtype=np.float32)
    for place, array in enumerate(arrays):
        padded[place, : len(array)] = array
    return torch.as_tensor(padded)


@dataclass(frozen=True, slots=True)
class DrawnActions:
    """Log-densities (B, ...) of drawn actions, and the mean entropy of the distributions."""

    scores: Tensor
    affinity: Tensor
    patience: Tensor
    entropy: Tensor


class Agents(nn.Module):
    """The ordering agent, the placement agent, and the critic, which sees the input of both."""

    def __init__(self, shape: DasShape, switch: NDArray[np.int32]) -> None:
        super().__init__()
        self.shape = shape
        self.ordering, self.placement = OrderingNet(shape), PlacementNet(shape)
        self.critic = DasCritic(shape.width)
        self.switch = nn.Buffer(torch.as_tensor(switch))

    def scores(self, seen: OrderingInput) -> tuple[Tensor, Tensor]:
        """Mean scores (B, J) and their standard deviation."""
        mean = self.ordering(seen.base, seen.task, seen.node, seen.mask)
        return mean, torch.exp(self.ordering.spread)

    def affinities(self, asked: PlacementInput) -> Affinities:
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

    def value(self, seen: OrderingInput, group: Tensor) -> Tensor:
        """Estimated cost to go (B,)."""
        value: Tensor = self.critic(seen, group)
        return value

    def densities(
        self, seen: OrderingInput, scores: Tensor, asked: PlacementInput, affinity: Tensor, patience: Tensor
    ) -> DrawnActions:
        """Present log-likelihood of drawn actions."""
        mean, spread = self.scores(seen)
        found = self.affinities(asked)
        calm = torch.exp(self.placement.patience_spread)
        factors = multinormal_entropy(found.factor) * asked.mask
        entropy = normal_entropy(spread) + normal_entropy(calm) + factors.sum() / asked.mask.sum().clamp(min=1)
        return DrawnActions(
            log_normal(scores, mean, spread),
            log_multinormal(affinity, found.mean, found.factor),
            log_normal(patience, found.patience, calm),
            entropy,
        )


def graphs_of(agents: Agents) -> dict[str, bytes]:
    """Both agents' networks by the names of their files. Raises ``RuntimeError`` where an export differs."""
    rng = torch.Generator().manual_seed(0)
    base, task, node, pair = (
        torch.randn(shape, generator=rng)
        for shape in ((1, 7, 4), (1, 7, len(TASK)), (1, 5, len(NODE)), (1, 7, 5, len(PAIR)))
    )
    ordering = {"base": base, "task": task, "node": node, "mask": torch.ones(1, 7)}
    placement = {"task": task, "node": node, "pair": pair}
    return {
        ORDERING: exported(agents.ordering, ordering, ("scores",), AXES),
        PLACEMENT: exported(agents.placement, placement, ("mean", "labels", "likeness", "patience"), AXES),
    }


def process_of(agents: Agents) -> Process:
    """The process's numbers."""
    placement = agents.placement
    with torch.no_grad():
        decay, noise = torch.sigmoid(placement.decay).item(), torch.exp(placement.noise).item()
    return Process(agents.shape.walks, decay, noise)


AXES = {
    "base": {1: "tasks"},
    "task": {1: "tasks"},
    "mask": {1: "tasks"},
    "node": {1: "nodes"},
    "pair": {1: "tasks", 2: "nodes"},
    "scores": {1: "tasks"},
    "mean": {1: "tasks", 2: "nodes"},
    "labels": {1: "tasks", 2: "nodes"},
    "likeness": {1: "tasks", 2: "nodes"},
    "patience": {1: "tasks"},
}

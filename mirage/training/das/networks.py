"""The networks of the two agents and their critic. Tensors are batches (B) of times, padded and masked."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from mirage.allocation.ddl.das.observation import TASK
from mirage.allocation.ddl.kernel.das_seeing import NODE, PAIR


@dataclass(frozen=True, slots=True)
class DasShape:
    """Kind and size of the agents."""

    communicates: bool = True
    """Whether the ordering agent gets the state of the machines (squeeze and communicate)."""
    walks: bool = True
    """Whether affinities are a random-walk Gaussian process; else each is drawn independently."""
    width: int = 32
    heads: int = 2
    layers: int = 1
    labels: int = 3
    likenesses: int = 4


class OrderingInput(NamedTuple):
    """Input of the ordering agent and the critic, padded to one length: (B, J, ...)."""

    base: Tensor
    task: Tensor
    node: Tensor
    mask: Tensor


class SqueezeAndCommunicate(nn.Module):
    """The machines' states, averaged, through a network, gated into each task's state:

    delta = sigmoid(W [s, f(c)] + b);  s~ = delta f(c) + (1 - delta) s.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.machine = nn.Sequential(nn.Linear(len(NODE), width), nn.Tanh())
        self.said = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, width))
        self.gate = nn.Linear(2 * width, width)
        nn.init.constant_(self.gate.bias, -2.0)

    def forward(self, tasks: Tensor, nodes: Tensor) -> Tensor:
        """(B, J, width) of tasks (B, J, width) and machines (B, N, features)."""
        squeezed = self.machine(nodes).mean(dim=1)
        said = self.said(squeezed).unsqueeze(1).expand_as(tasks)
        opened = torch.sigmoid(self.gate(torch.cat([tasks, said], dim=-1)))
        heard: Tensor = opened * said + (1 - opened) * tasks
        return heard


class SelfAttention(nn.Module):
    """Self-attention over the list, normalised first (Xiong et al., ICML 2020), written out for ONNX."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.asked = nn.Linear(width, 3 * width)
        self.joined = nn.Linear(width, width)
        self.forwarded = nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """(B, J, width); ``mask`` (B, J) is 1 where there is a task."""
        query, key, value = (self._split(part) for part in self.asked(self.before(tokens)).chunk(3, dim=-1))
        fit = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
        weights = torch.softmax(fit + (mask - 1)[:, None, None, :] * 1e9, dim=-1)
        tokens = tokens + self.joined((weights @ value).transpose(1, 2).flatten(2))
        again: Tensor = tokens + self.forwarded(self.between(tokens))
        return again

    def _split(self, tokens: Tensor) -> Tensor:
        batch, length, width = tokens.shape
        return tokens.reshape(batch, length, self.heads, width // self.heads).transpose(1, 2)


class Positions(nn.Module):
    """Sines and cosines of the place in the list (Vaswani et al., 2017)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        rate = torch.exp(torch.arange(0, width, 2) * (-math.log(1e4) / width))
        self.rate = nn.Buffer(rate)

    def forward(self, tokens: Tensor) -> Tensor:
        """The tokens (B, J, width) with their places added."""
        place = torch.cumsum(torch.ones_like(tokens[:, :, :1]), dim=1) - 1
        angle = place * self.rate
        return tokens + 0.1 * torch.cat([torch.sin(angle), torch.cos(angle)], dim=-1)


class OrderingNet(nn.Module):
    """Mean priority scores: a linear function of features of good heuristics, and a trained correction."""

    def __init__(self, shape: DasShape) -> None:
        super().__init__()
        self.task = nn.Linear(len(TASK), shape.width)
        self.heard = SqueezeAndCommunicate(shape.width) if shape.communicates else None
        self.places = Positions(shape.width)
        self.blocks = nn.ModuleList(SelfAttention(shape.width, shape.heads) for _ in range(shape.layers))
        self.last = nn.LayerNorm(shape.width)
        self.correction = nn.Linear(shape.width, 1)
        _silence(self.correction)
        self.base = nn.Parameter(torch.tensor(BASE_SCORE))
        self.spread = nn.Parameter(torch.tensor(math.log(0.2)))

    def forward(self, base: Tensor, task: Tensor, node: Tensor, mask: Tensor) -> Tensor:
        """(B, J): the smallest comes first. ``base`` (B, J, 4), ``mask`` (B, J) of the tasks that wait."""
        tokens = self.task(task)
        if self.heard is not None:
            tokens = self.heard(tokens, node)
        tokens = self.places(tokens)
        for block in self.blocks:
            tokens = block(tokens, mask)
        scores: Tensor = base @ self.base + self.correction(self.last(tokens)).squeeze(-1)
        return scores


BASE_SCORE = (1.0, 0.0, 0.0, -0.6)
"""Initial weights: the shortest first (SJF); tasks that fill a machine before others up to 1.8 times shorter."""


class PlacementNet(nn.Module):
    """Parameters of the process for each task and machine: mean, labels, likeness; and each task's timeout."""

    def __init__(self, shape: DasShape) -> None:
        super().__init__()
        self.shape = shape
        self.task, self.node = nn.Linear(len(TASK), shape.width), nn.Linear(len(NODE), shape.width)
        self.pair = nn.Linear(len(PAIR), shape.width)
        self.mixed = nn.Sequential(nn.Tanh(), nn.Linear(shape.width, shape.width), nn.Tanh())
        self.mean = nn.Linear(shape.width, 1)
        self.labels = nn.Linear(shape.width, shape.labels)
        self.likeness = nn.Linear(shape.width, shape.likenesses)
        self.patience = nn.Sequential(
            nn.Linear(len(TASK) + len(NODE), shape.width), nn.Tanh(), nn.Linear(shape.width, 1)
        )
        _silence(self.mean)
        _silence(self.patience[-1], PATIENCE)
        self.amplitude = nn.Parameter(torch.tensor(math.log(0.1)))
        self.decay = nn.Parameter(torch.tensor(0.0))
        self.noise = nn.Parameter(torch.tensor(math.log(0.3)))
        self.own_spread = nn.Parameter(torch.tensor(math.log(0.05)))
        self.patience_spread = nn.Parameter(torch.tensor(math.log(0.1)))

    def forward(self, task: Tensor, node: Tensor, pair: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Means (B, J, N), labels (B, J, N, C), likenesses (B, J, N, d), timeout (B, J)."""
        met = self.task(task).unsqueeze(2) + self.node(node).unsqueeze(1) + self.pair(pair)
        mixed = self.mixed(met)
        # Of unit size, so that only the amplitude sets the size of affinities.
        labels = torch.tanh(self.labels(mixed)) * torch.exp(self.amplitude)
        likeness = nn.functional.softplus(self.likeness(mixed)) + 1e-3
        around = node.mean(dim=1, keepdim=True).expand(-1, task.shape[1], -1)
        patience = self.patience(torch.cat([task, around], dim=-1)).squeeze(-1)
        return self.mean(mixed).squeeze(-1), labels, likeness, patience


PATIENCE = -0.15
"""Initial timeout: placements that cost 16 % more than the undisturbed run, or that are spread without success,
are not taken."""


class DasCritic(nn.Module):
    """Estimated cost to go, from the whole state: tasks and machines pooled, and the progress of the set of tasks.

    The cost to go of other runs of the same set at that time is its base; it learns the difference.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.task = nn.Sequential(
            nn.Linear(len(TASK) + len(BASE_SCORE), width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()
        )
        self.node = nn.Sequential(nn.Linear(len(NODE), width), nn.ReLU())
        self.value = nn.Sequential(nn.Linear(2 * width + 4, width), nn.ReLU(), nn.Linear(width, 1))
        _silence(self.value[-1])

    def forward(self, seen: OrderingInput, group: Tensor) -> Tensor:
        """(B,), by ``group`` (B, 4): ``rewards.group_features``."""
        told = torch.cat([seen.base / 10.0, seen.task], dim=-1)
        tasks = (self.task(told) * seen.mask.unsqueeze(-1)).sum(dim=1) / 20.0
        state = torch.cat([tasks, self.node(seen.node).mean(dim=1), group], dim=-1)
        value: Tensor = self.value(state).squeeze(-1) - group[:, 0]
        return value


def _silence(layer: nn.Module, level: float = 0.0) -> None:
    """Initialise a linear layer to return only ``level``."""
    if not isinstance(layer, nn.Linear):
        raise TypeError(type(layer).__name__)
    nn.init.zeros_(layer.weight)
    nn.init.constant_(layer.bias, level)

"""Actor and critic: recurrent over the ready pieces in the order of their deadlines.

Tensors are batches (B) of instants, padded behind (N) and masked. The recurrence runs from the earliest deadline
on, so what is padded behind a piece cannot reach it; what comes later reaches it through the mean of all alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from mirage.allocation.inference.kernel.seeing import PAIR, PIECE, STATE

FAVOUR = 1.5
"""The most that an affinity says: seconds on the unit count for exp(-1.5), 0.22 of what they are."""


@dataclass(frozen=True, slots=True)
class Shape:
    """How large the networks are."""

    width: int = 32
    """Of what the recurrence remembers."""
    pair: int = 16


class Seen(NamedTuple):
    """A batch of sights."""

    piece: Tensor
    """(B, N, len(PIECE))"""
    pair: Tensor
    """(B, N, U, len(PAIR))"""
    state: Tensor
    """(B, len(STATE))"""
    mask: Tensor
    """(B, N) 1 where there is a piece."""


class Shift(NamedTuple):
    """What is added to the actor's last layers at each instant of a batch."""

    priority: Tensor
    """(B, W + 1) The bias last."""
    affinity: Tensor
    """(B, V + 1) The bias last."""


class Reader(nn.Module):
    """Reads the pieces one after the other; ``told``: how many numbers more are said of each pair and piece."""

    def __init__(self, shape: Shape, told: int = 0) -> None:
        super().__init__()
        self.pairs = nn.Sequential(nn.Linear(len(PAIR) + told, shape.pair), nn.ReLU())
        self.pieces = nn.Sequential(nn.Linear(len(PIECE) + shape.pair + len(STATE) + told, shape.width), nn.ReLU())
        self.memory = nn.LSTM(shape.width, shape.width, batch_first=True)

    def forward(self, piece: Tensor, pair: Tensor, state: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """What is remembered at each piece (B, N, W), in the mean (B, W), and of each pair (B, N, U, V)."""
        pairs = self.pairs(pair)
        around = state.unsqueeze(1).expand(-1, piece.shape[1], -1)
        pieces = self.pieces(torch.cat([piece, pairs.mean(dim=2), around], dim=-1))
        remembered, _ = self.memory(pieces)
        shown = mask.unsqueeze(-1)
        mean = (remembered * shown).sum(dim=1) / shown.sum(dim=1).clamp(min=1.0)
        return remembered, mean, pairs


class Actor(nn.Module):
    """A priority for each piece within -1 and 1, an affinity for each pair within ``FAVOUR``; 0 at first."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.reader = Reader(shape)
        self.judged = nn.Sequential(nn.Linear(2 * shape.width, shape.width), nn.ReLU())
        self.priority = nn.Linear(shape.width, 1)
        self.drawn = nn.Sequential(nn.Linear(shape.width + shape.pair, shape.pair), nn.ReLU())
        self.affinity = nn.Linear(shape.pair, 1)
        for last in (self.priority, self.affinity):
            nn.init.zeros_(last.weight)
            nn.init.zeros_(last.bias)

    def forward(self, piece: Tensor, pair: Tensor, state: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """(B, N) and (B, N, U)."""
        judged, drawn = self._features(piece, pair, state, mask)
        return _bounded(self.priority(judged), self.affinity(drawn))

    def disturbed(self, seen: Seen, shift: Shift) -> tuple[Tensor, Tensor]:
        """As ``forward``, each instant of the batch with last layers of its own."""
        judged, drawn = self._features(*seen)
        priority = self.priority(judged) + _linear(judged, shift.priority[:, None])
        affinity = self.affinity(drawn) + _linear(drawn, shift.affinity[:, None, None])
        return _bounded(priority, affinity)

    def _features(self, piece: Tensor, pair: Tensor, state: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        remembered, mean, pairs = self.reader(piece, pair, state, mask)
        judged = self.judged(torch.cat([remembered, mean.unsqueeze(1).expand_as(remembered)], dim=-1))
        wide = judged.unsqueeze(2).expand(-1, -1, pairs.shape[2], -1)
        return judged, self.drawn(torch.cat([wide, pairs], dim=-1))


def _bounded(priority: Tensor, affinity: Tensor) -> tuple[Tensor, Tensor]:
    return torch.tanh(priority).squeeze(-1), FAVOUR * torch.tanh(affinity).squeeze(-1)


def _linear(values: Tensor, weight: Tensor) -> Tensor:
    """(..., 1) By weights (..., W + 1), the bias last."""
    return (values * weight[..., :-1]).sum(dim=-1, keepdim=True) + weight[..., -1:]


class Critic(nn.Module):
    """What is still to come of an instant and what is done there: Q."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.reader = Reader(shape, told=1)
        self.value = nn.Sequential(
            nn.Linear(shape.width + len(STATE), shape.width), nn.ReLU(), nn.Linear(shape.width, 1)
        )

    def forward(self, seen: Seen, priority: Tensor, affinity: Tensor) -> Tensor:
        """(B,)"""
        piece = torch.cat([seen.piece, priority.unsqueeze(-1)], dim=-1)
        pair = torch.cat([seen.pair, (affinity / FAVOUR).unsqueeze(-1)], dim=-1)
        _, mean, _ = self.reader(piece, pair, seen.state, seen.mask)
        value: Tensor = self.value(torch.cat([mean, seen.state], dim=-1)).squeeze(-1)
        return value

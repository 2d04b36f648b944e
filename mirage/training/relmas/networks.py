"""Actor and critic: recurrent over the ready segments in the order of their deadlines.

Tensors are batches (B) of times, padded at the end (N) and masked. The recurrence runs from the earliest deadline
on, so padding behind a segment cannot affect it; later segments affect it only through the mean of all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from mirage.allocation.inference.kernel.seeing import PAIR, PIECE, STATE

LIMITS, FAVOUR = (1.0, 1.5, 1.0), 1.5
"""Largest scores: priority, hold and caution (columns of ``kernel.scored``), and the affinity to each kind: the
next segment's seconds count for exp(-1.5), 0.22 of their value."""


@dataclass(frozen=True, slots=True)
class Shape:
    """How large the networks are."""

    width: int = 64
    """Width of the recurrent state."""
    pair: int = 16


class Seen(NamedTuple):
    """A batch of observations."""

    piece: Tensor
    """(B, N, len(PIECE))"""
    pair: Tensor
    """(B, N, K, len(PAIR))"""
    state: Tensor
    """(B, len(STATE))"""
    mask: Tensor
    """(B, N) 1 where a segment exists."""


class Shift(NamedTuple):
    """Disturbance of the actor's last layers at each time of a batch."""

    request: Tensor
    """(B, len(LIMITS), W + 1) The bias last."""
    affinity: Tensor
    """(B, V + 1) The bias last."""


class Reader(nn.Module):
    """Reads the rows one after the other; ``told``: whether the actions are part of the input."""

    def __init__(self, shape: Shape, *, told: bool = False) -> None:
        super().__init__()
        done = len(LIMITS) if told else 0
        self.pairs = nn.Sequential(nn.Linear(len(PAIR) + told, shape.pair), nn.ReLU())
        self.pieces = nn.Sequential(nn.Linear(len(PIECE) + shape.pair + len(STATE) + done, shape.width), nn.ReLU())
        self.memory = nn.LSTM(shape.width, shape.width, batch_first=True)

    def forward(self, piece: Tensor, pair: Tensor, state: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """State at each segment (B, N, W), its mean (B, W), and that of each pair (B, N, K, V)."""
        pairs = self.pairs(pair)
        around = state.unsqueeze(1).expand(-1, piece.shape[1], -1)
        pieces = self.pieces(torch.cat([piece, pairs.mean(dim=2), around], dim=-1))
        remembered, _ = self.memory(pieces)
        shown = mask.unsqueeze(-1)
        mean = (remembered * shown).sum(dim=1) / shown.sum(dim=1).clamp(min=1.0)
        return remembered, mean, pairs


class Actor(nn.Module):
    """Scores (B, N, KINDS + K) within ``bounds``; initially 0."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.reader = Reader(shape)
        self.judged = nn.Sequential(nn.Linear(2 * shape.width, shape.width), nn.ReLU())
        self.request = nn.Linear(shape.width, len(LIMITS))
        self.drawn = nn.Sequential(nn.Linear(shape.width + shape.pair, shape.pair), nn.ReLU())
        self.affinity = nn.Linear(shape.pair, 1)
        for last in (self.request, self.affinity):
            nn.init.zeros_(last.weight)
            nn.init.zeros_(last.bias)

    def forward(self, piece: Tensor, pair: Tensor, state: Tensor, mask: Tensor) -> Tensor:
        """(B, N, KINDS + K)"""
        judged, drawn = self._features(piece, pair, state, mask)
        return _bounded(self.request(judged), self.affinity(drawn))

    def disturbed(self, seen: Seen, shift: Shift) -> Tensor:
        """As ``forward``, with separate last layers for each time of the batch."""
        judged, drawn = self._features(*seen)
        bias = shift.request[:, None, :, -1]
        request = self.request(judged) + torch.einsum("bnw,bsw->bns", judged, shift.request[..., :-1]) + bias
        affinity = shift.affinity[:, None, None]
        more = (drawn * affinity[..., :-1]).sum(dim=-1, keepdim=True) + affinity[..., -1:]
        return _bounded(request, self.affinity(drawn) + more)

    def _features(self, piece: Tensor, pair: Tensor, state: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        remembered, mean, pairs = self.reader(piece, pair, state, mask)
        judged = self.judged(torch.cat([remembered, mean.unsqueeze(1).expand_as(remembered)], dim=-1))
        wide = judged.unsqueeze(2).expand(-1, -1, pairs.shape[2], -1)
        return judged, self.drawn(torch.cat([wide, pairs], dim=-1))


def bounds(kinds: int) -> Tensor:
    """(KINDS + K,) Largest absolute value of each score."""
    return torch.tensor((*LIMITS, *(FAVOUR for _ in range(kinds))))


def _bounded(request: Tensor, affinity: Tensor) -> Tensor:
    within = torch.tanh(request) * torch.tensor(LIMITS)
    return torch.cat([within, FAVOUR * torch.tanh(affinity).squeeze(-1)], dim=-1)


class Critic(nn.Module):
    """Value of a state and an action: Q."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.reader = Reader(shape, told=True)
        self.value = nn.Sequential(
            nn.Linear(shape.width + len(STATE), shape.width), nn.ReLU(), nn.Linear(shape.width, 1)
        )

    def forward(self, seen: Seen, action: Tensor) -> Tensor:
        """Shape (B,)."""
        told = action / bounds(seen.pair.shape[2])
        piece = torch.cat([seen.piece, told[..., : len(LIMITS)]], dim=-1)
        pair = torch.cat([seen.pair, told[..., len(LIMITS) :].unsqueeze(-1)], dim=-1)
        _, mean, _ = self.reader(piece, pair, seen.state, seen.mask)
        value: Tensor = self.value(torch.cat([mean, seen.state], dim=-1)).squeeze(-1)
        return value

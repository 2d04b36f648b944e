"""Evolution strategies on the actor's last layers (Salimans et al., 2017): DDPG's result is refined, or kept.

Pairs of equal systems run for some periods, one with a disturbance of the last layers, one with its opposite. The
difference of their gains shows how good the direction is, independent of the errors of a critic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from mirage.training.relmas.exploring import disturbed, drawn_shift
from mirage.training.relmas.networks import Shift

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from mirage.training.relmas.bouts import Bout
    from mirage.training.relmas.networks import Actor


class Evolution:
    """The last layers of an actor, with their optimiser."""

    def __init__(self, actor: Actor, spread: float, rate: float) -> None:
        self._actor, self._spread = actor, spread
        self._layers = (actor.request, actor.affinity)
        parameters = [part for layer in self._layers for part in (layer.weight, layer.bias)]
        self._optimiser = torch.optim.Adam(parameters, lr=rate)

    def improve(self, bouts: Sequence[Bout], stretch: int, rng: torch.Generator) -> float:
        """Run each system next to its opposite, and move to the better side; returns how much they differ."""
        one = drawn_shift(self._actor, len(bouts), self._spread, rng)
        pairs = [*bouts, *(bout.copy() for bout in bouts)]
        shift = Shift(*(torch.cat([part, -part]) for part in one))
        gained = torch.zeros(len(pairs))
        for _ in range(stretch):
            sights = [bout.sight() for bout in pairs]
            for row, (bout, action) in enumerate(
                zip(pairs, disturbed(self._actor, sights, shift, 0.0, rng), strict=True)
            ):
                if not bout.over:
                    gained[row] += bout.step(sights[row].scores(action))
        better = gained[: len(bouts)] - gained[len(bouts) :]
        self._step(one, better / (better.std() + 1e-6))
        return float(better.abs().mean())

    def _step(self, shift: Shift, better: Tensor) -> None:
        self._optimiser.zero_grad()
        for layer, drawn in zip(self._layers, shift, strict=True):
            towards = (
                torch.einsum("b,b...->...", better, drawn).reshape(-1, drawn.shape[-1])
                / len(better)
                / self._spread
            )
            layer.weight.grad, layer.bias.grad = -towards[:, :-1], -towards[:, -1]
        self._optimiser.step()

"""Weights of several predictors from their past losses (AdaHedge)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


class AdaHedge:
    """Weights of predictors; equal before the first round.

    De Rooij, van Erven, Grunwald & Koolen (JMLR 15, 2014): exponential weights whose rate falls with the gap
    between the mixture's loss and the mix loss, so that nothing is to be tuned and losses may have any scale.
    Against the best of K advisers the expected loss is worse by at most
    ``sqrt(sum(s**2) ln K) + max(s) (4/3 ln K + 2)``, s being each round's spread of losses (their Theorem 8).
    """

    def __init__(self, advisers: int, memory: float = 1.0) -> None:
        """``memory``: discount factor of past losses per round; 1: no discount, as in the proven bound."""
        self._memory = memory
        self._total: Floats = np.zeros(advisers)
        self._gap = 0.0

    @property
    def weights(self) -> Floats:
        """Current weights, which sum to 1."""
        return self._mix()[0]

    def learn(self, losses: Floats) -> None:
        """Update with the loss of each predictor in one round."""
        weights, before = self._mix()
        self._total = self._total + losses
        # Rounding may make it slightly negative.
        gap = max(0.0, float(weights @ losses) - (self._mix()[1] - before))
        self._gap = self._memory * (self._gap + gap)
        self._total = self._memory * self._total

    def _mix(self) -> tuple[Floats, float]:
        """Weights and mix loss at the learning rate of the gap; without a gap the best share all weight."""
        least = float(self._total.min())
        if self._gap == 0.0:
            best = self._total == least
            return best / best.sum(), least
        rate = float(np.log(len(self._total))) / self._gap
        weights = np.exp(-rate * (self._total - least))
        return weights / weights.sum(), least - float(np.log(weights.mean())) / rate


def pinball(levels: Floats, quantiles: Floats, value: Floats) -> Floats:
    """Mean over ``levels`` of the quantile loss (Koenker & Bassett, Econometrica 46, 1978), in the value's unit.

    ``quantiles`` (..., levels) against ``value`` (...).
    """
    error = value[..., None] - quantiles
    found: Floats = np.maximum(levels * error, (levels - 1.0) * error).mean(axis=-1)
    return found

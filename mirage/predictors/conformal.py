"""Adaptive conformal correction of wait quantiles, and the scale on which errors are compared."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

KNEE = 600.0
"""Seconds: shorter waits are compared by difference, longer ones by ratio."""

STEP = 0.1
"""Step of a quantile per round on the scale of ``scaled``: a tenth of the wait beyond the knee."""


def scaled(wait: Floats) -> Floats:
    """Map waits in seconds (0 or more) to a scale that is linear below ``KNEE`` and logarithmic above."""
    found: Floats = np.log1p(wait / KNEE)
    return found


def unscaled(value: Floats) -> Floats:
    """Return the inverse of ``scaled``, at least 0."""
    found: Floats = KNEE * np.expm1(np.maximum(value, 0.0))
    return found


class QuantileTracker:
    """Shifts quantiles of a score so that coverage approaches each level, for any sequence of scores.

    Adaptive conformal inference (Gibbs & Candes, NeurIPS 2021) in its additive form, the quantile tracker of
    Angelopoulos, Candes & Tibshirani (NeurIPS 2023): after each round ``shift += step * (level - covered)``. For
    scores within -b and b the share covered differs from the level by at most ``(b + step) / (step * rounds)``
    (their Proposition 1), for any sequence. Exchangeability is not assumed, so a change of regime only costs
    rounds.
    """

    def __init__(self, levels: tuple[float, ...], step: float = STEP) -> None:
        self._levels = np.array(levels)
        self._step = step
        self.shift: Floats = np.zeros(len(levels))
        """Shift per level, on the scale of the scores."""

    def learn(self, covered: Floats) -> None:
        """Update with one round: share of scores covered by each shifted quantile, shape (levels,).

        ``nan``: unknown.
        """
        told = ~np.isnan(covered)
        self.shift[told] += self._step * (self._levels - covered)[told]


def censored_quantiles(values: Floats, exceeds: NDArray[np.bool_], levels: tuple[float, ...]) -> Floats:
    """Return quantiles of right-censored ``values``; ``nan`` for levels that censoring leaves open.

    ``exceeds``: the value is a lower bound. The quantile is the smallest value at which the estimate of Kaplan &
    Meier (JASA 53, 1958) of the share beyond is at most ``1 - level``. Shape (levels,).
    """
    # Of equal values, censored ones come last: they were still at risk.
    order = np.lexsort((exceeds, values))
    ordered, event = values[order], ~exceeds[order]
    at_risk = len(values) - np.arange(len(values))
    beyond = np.cumprod(np.where(event, 1.0 - 1.0 / at_risk, 1.0))
    reached = beyond[None, :] <= 1.0 - np.array(levels)[:, None] + 1e-12
    first = reached.argmax(axis=1) if len(values) else np.zeros(len(levels), dtype=np.int64)
    found = np.full(len(levels), np.nan)
    known = reached.any(axis=1)
    found[known] = ordered[first[known]]
    return found

"""Waits on a scale where errors compare, and quantiles that experience sets right."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

KNEE = 600.0
"""Seconds: shorter waits differ by their difference, longer ones by their ratio."""

STEP = 0.1
"""By how much one round may move a quantile on the scale of ``scaled``: a tenth of the wait beyond the knee."""


def scaled(wait: Floats) -> Floats:
    """Waits in seconds (0 or more) on a scale that is linear below ``KNEE`` and logarithmic above."""
    found: Floats = np.log1p(wait / KNEE)
    return found


def unscaled(value: Floats) -> Floats:
    """The inverse of ``scaled``; what lies below no wait is no wait."""
    found: Floats = KNEE * np.expm1(np.maximum(value, 0.0))
    return found


class QuantileTracker:
    """Shifts quantiles of a score so that each is exceeded as often as its level says, whatever the scores do.

    Adaptive conformal inference (Gibbs & Candes, NeurIPS 2021) in its additive form, the quantile tracker of
    Angelopoulos, Candes & Tibshirani (NeurIPS 2023): after each round ``shift += step * (level - covered)``.
    For scores within -b and b the share covered differs from the level by at most ``(b + step) / (step * rounds)``
    (their Proposition 1), for any sequence: no assumption of exchangeability, so a change of regime costs rounds
    and nothing else.
    """

    def __init__(self, levels: tuple[float, ...], step: float = STEP) -> None:
        self._levels = np.array(levels)
        self._step = step
        self.shift: Floats = np.zeros(len(levels))
        """One a level, on the score's scale."""

    def learn(self, covered: Floats) -> None:
        """One round: which part of the scores each shifted quantile has covered, shape (levels,).

        ``nan`` where that cannot be told.
        """
        told = ~np.isnan(covered)
        self.shift[told] += self._step * (self._levels - covered)[told]


def censored_quantiles(values: Floats, exceeds: NDArray[np.bool_], levels: tuple[float, ...]) -> Floats:
    """Quantiles of ``values`` of which some are known only to be exceeded; ``nan`` where so much is not known.

    The least value at which Kaplan & Meier's estimate (JASA 53, 1958) of the share beyond is at most one less the
    level. Shape (levels,).
    """
    # Where a value occurs both ways, what is exceeded comes last: it was still at risk.
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

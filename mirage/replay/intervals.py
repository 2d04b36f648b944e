"""Confidence intervals for episodes that overlap in time.

Episodes start every few hours and last days, so neighbours see the same queue and are strongly correlated;
a bootstrap that draws them one by one would promise far too much. Whole blocks of consecutive episodes are
drawn instead: the circular block bootstrap of Politis and Romano (1992), which is Künsch's (1989) moving
blocks with the series closed to a ring, so that every episode is drawn equally often.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

FEWEST_BLOCKS = 3
"""With fewer blocks the data do not show how much they vary, and no interval is given."""


@dataclass(frozen=True, slots=True)
class Resampling:
    """Parameters of the block bootstrap: block length, number of resamples, confidence."""

    block: int = 3 * 86_400
    """Seconds of consecutive episode starts kept together: longer than an episode of two 48 h links lasts
    from the first decision to the successor's start in all but the heaviest load."""
    resamples: int = 4_000
    level: float = 0.95
    """Nominal coverage of the intervals."""
    seed: int = 0


@dataclass(frozen=True, slots=True)
class IntervalEstimate:
    """A statistic with its confidence interval; ``nan`` where the data do not determine one."""

    value: float
    low: float = math.nan
    high: float = math.nan

    @property
    def bounded(self) -> bool:
        """Whether both ends of the interval are finite."""
        return math.isfinite(self.low) and math.isfinite(self.high)


@dataclass(frozen=True, slots=True)
class Resamples:
    """Weight of each episode: 1 in row 0 (the data), the number of draws in each further row."""

    weights: Ints
    """Shape (1 + resamples, episodes)."""
    length: int
    """Episodes per block."""
    level: float

    def of(self, rows: Ints) -> Floats:
        """Weights of observations, given their episodes; shape (1 + resamples, len(rows))."""
        return self.weights[:, rows].astype(np.float64)

    def blocks(self, rows: Ints) -> float:
        """Number of blocks on which observations rest, given their episodes."""
        return float(min(len(np.unique(rows // self.length)), self.weights.shape[1] / self.length))

    def estimate(self, replicates: Floats, blocks: float) -> IntervalEstimate:
        """The statistic of the data (element 0) with the interval that its replicates span.

        ``blocks`` is the number of blocks on which it rests; ``nan`` replicates (resamples in which it is not
        defined) are left out.
        """
        value = float(replicates[0])
        drawn = replicates[1:][np.isfinite(replicates[1:])]
        if not math.isfinite(value) or blocks < FEWEST_BLOCKS or len(drawn) < len(replicates) // 2:
            return IntervalEstimate(value)
        tail = expanded_tail(blocks, self.level)
        low, high = np.quantile(drawn, [tail, 1 - tail])
        return IntervalEstimate(value, float(low), float(high))


def resample_episodes(starts: Ints, how: Resampling) -> Resamples:
    """Draw blocks of consecutive episodes until each resample has as many episodes as the data.

    ``starts`` are the episodes' starts in ascending order, seconds. The block's length in episodes is
    ``how.block`` over the median spacing of the starts.
    """
    count = len(starts)
    data = np.ones((1, count), dtype=np.int64)
    if count < 2:
        return Resamples(data, length=1, level=how.level)
    length = block_length(starts, how.block)
    rng = np.random.default_rng(how.seed)
    drawn = _circular_blocks(count, length, how.resamples, rng)
    return Resamples(np.vstack([data, drawn]), length=length, level=how.level)


def block_length(starts: Ints, block: int) -> int:
    """Episodes per block, at least 1 and at most all."""
    spacing = max(1.0, float(np.median(np.diff(starts))))
    return max(1, min(len(starts), math.ceil(block / spacing)))


def _circular_blocks(count: int, length: int, resamples: int, rng: np.random.Generator) -> Ints:
    """Weights of shape (resamples, count); the last block is cut so that each row sums to ``count``."""
    firsts = rng.integers(0, count, size=(resamples, math.ceil(count / length)))
    drawn = (firsts[:, :, None] + np.arange(length)).reshape(resamples, -1)[:, :count] % count
    cells = drawn + count * np.arange(resamples)[:, None]
    return np.bincount(cells.ravel(), minlength=resamples * count).reshape(resamples, count)


def expanded_tail(blocks: float, level: float) -> float:
    """Share of replicates to cut at each end of a percentile interval.

    A percentile interval of n independent draws is too short by sqrt((n-1)/n) and by the normal's quantile
    where Student's belongs. Cutting Phi(-sqrt(n/(n-1)) t) instead of (1-level)/2 fixes both (Hesterberg 2015,
    "What teachers should know about the bootstrap", section 3.4); the independent draws here are the blocks.
    """
    spread = math.sqrt(blocks / (blocks - 1)) * student_quantile(0.5 + level / 2, blocks - 1)
    return NormalDist().cdf(-spread)


def student_quantile(probability: float, freedom: float) -> float:
    """Student's t quantile by the expansion of Abramowitz and Stegun 26.7.5 (within 1 % for freedom >= 3)."""
    x = NormalDist().inv_cdf(probability)
    terms = (
        (x**3 + x) / 4,
        (5 * x**5 + 16 * x**3 + 3 * x) / 96,
        (3 * x**7 + 19 * x**5 + 17 * x**3 - 15 * x) / 384,
        (79 * x**9 + 776 * x**7 + 1482 * x**5 - 1920 * x**3 - 945 * x) / 92160,
    )
    return x + sum(float(term) / freedom**power for power, term in enumerate(terms, start=1))


def weighted_mean(values: Floats, weights: Floats) -> Floats:
    """Mean of ``values`` (n,) under each row of ``weights`` (m, n); shape (m,), ``nan`` where none counts."""
    total = weights.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(weights @ values / total)


def weighted_quantile(values: Floats, weights: Floats, q: float) -> Floats:
    """Quantile of ``values`` each repeated as whole ``weights`` say; as numpy's default (linear) definition.

    Shapes as in ``weighted_mean``; ``nan`` where none counts.
    """
    order = np.argsort(values, kind="stable")
    if not len(order):
        return np.full(len(weights), np.nan)
    ordered, counts = values[order], weights[:, order].cumsum(axis=1)
    position = np.maximum(counts[:, -1] - 1, 0) * q
    below = np.floor(position)
    low, high = (_at_rank(ordered, counts, rank) for rank in (below, np.ceil(position)))
    return np.where(counts[:, -1] > 0, low + (high - low) * (position - below), np.nan)


def _at_rank(ordered: Floats, counts: Floats, rank: Floats) -> Floats:
    """The value of 0-based ``rank`` in each row's expanded sample."""
    index = (counts <= rank[:, None]).sum(axis=1)
    return np.asarray(ordered[np.minimum(index, len(ordered) - 1)])

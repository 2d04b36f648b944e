"""Constants for each model that do well in one scenario: actors imitate them before they explore.

A request's priority, hold and caution (``kernel.scored``) by its model alone, found by CMA-ES (Hansen &
Ostermeier, Evolutionary Computation 9(2), 2001; the library ``cmaes``). A whole run by constants is compiled, so
hundreds of them take the time of one run with an agent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from cmaes import CMA

from mirage.training.relmas.networks import LIMITS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    Float64 = NDArray[np.float64]
    Worths = Callable[[Sequence[Float64], range], list[float]]

GROUNDS = (0.0, 0.3, 0.55)
"""Initial holds of a search, as parts of their maximum."""
STEP, STALE = 0.15, 0.004
"""The first step, as a part of the maximum of constants; the remaining gain below which no search starts."""
CHECKED, PLAYED = 12, 4
"""Workloads for comparing beginnings and ends; workloads of one generation."""


def search(
    worths: Worths, used: NDArray[np.intp], shape: tuple[int, int], generations: int, first: int
) -> Float64:
    """Search constants by their mean figure on workloads of seeds from ``first`` on.

    ``shape``: (M, KINDS + K), of which the columns before the affinities are filled for the models ``used``: no
    others are requested. Zeros where the search finds nothing better.
    """

    def spread(found: Float64) -> Float64:
        whole = np.zeros(shape)
        whole[used, : len(LIMITS)] = found.reshape(len(used), len(LIMITS)) * LIMITS
        return whole

    checked = range(first, first + CHECKED)
    grounds = [np.tile([0.0, hold, 0.0], len(used)) for hold in GROUNDS]
    values = worths([spread(ground) for ground in grounds], checked)
    if values[0] > 1.0 - STALE:
        return spread(grounds[0])
    best = grounds[int(np.argmax(values))]
    found = _evolve(
        lambda tried, seeds: worths([spread(x) for x in tried], seeds), best, generations, checked.stop
    )
    # Where little can be gained the search goes too far: half of the way may be better.
    ends = [(best + found) / 2.0, found]
    values += worths([spread(end) for end in ends], checked)
    return spread([*grounds, *ends][int(np.argmax(values))])


def _evolve(worths: Worths, mean: Float64, generations: int, first: int) -> Float64:
    """Mean of the last generation. Each generation has other workloads, to avoid overfitting."""
    strategy = CMA(mean, STEP, bounds=np.tile([-1.0, 1.0], (len(mean), 1)), seed=first)
    for number in range(generations):
        seeds = range(first + number * PLAYED, first + (number + 1) * PLAYED)
        tried = [strategy.ask() for _ in range(strategy.population_size)]
        strategy.tell([(x, -value) for x, value in zip(tried, worths(tried, seeds), strict=True)])
    found: Float64 = strategy.mean
    return found

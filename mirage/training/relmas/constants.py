"""Constants for each model that do well in one scenario: what actors imitate before they learn of their own.

A request's priority, hold and caution (``kernel.scored``) by its model alone, found by an evolution strategy with
cumulative step-size adaptation (Hansen & Ostermeier, Evolutionary Computation 9(2), 2001, without the matrix). A
whole run by constants is compiled, so some hundred of them can be played in the time of one that asks an agent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mirage.training.relmas.networks import LIMITS

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Float64 = NDArray[np.float64]
    Worth = Callable[[Float64, range], float]

GROUNDS = (0.0, 0.3, 0.55)
"""Holds, by the most that they can be, from which a search may begin."""
STEP, STALE = 0.25, 0.004
"""The first step, by the most that constants can be; what is left to be won that is not worth a search."""
CHECKED, PLAYED = 4, 3
"""Workloads by which beginnings and ends are compared; workloads of one generation."""


def search(worth: Worth, used: NDArray[np.intp], models: int, generations: int, first: int) -> Float64:
    """[M, len(LIMITS)] By ``worth(constants, seeds)`` where models ``used`` come; seeds from ``first`` on.

    Zeros where nothing better is found.
    """

    def spread(found: Float64) -> Float64:
        whole = np.zeros((models, len(LIMITS)))
        whole[used] = np.clip(found.reshape(len(used), len(LIMITS)), -1.0, 1.0) * LIMITS
        return whole

    checked = range(first, first + CHECKED)
    grounds = [np.tile([0.0, hold, 0.0], len(used)) for hold in GROUNDS]
    nothing = worth(spread(grounds[0]), checked)
    if nothing > 1.0 - STALE:
        return spread(grounds[0])
    values = [nothing, *(worth(spread(ground), checked) for ground in grounds[1:])]
    best = grounds[int(np.argmax(values))]
    found = _evolve(lambda x, seeds: worth(spread(x), seeds), best, generations, first + CHECKED)
    values.append(worth(spread(found), checked))
    return spread([*grounds, found][int(np.argmax(values))])


def _evolve(worth: Worth, mean: Float64, generations: int, first: int) -> Float64:
    rng, size = np.random.default_rng(first), len(mean)
    count = 4 + int(3 * np.log(size))
    weights = np.log(count // 2 + 0.5) - np.log(np.arange(1, count // 2 + 1))
    weights /= weights.sum()
    mass = 1.0 / (weights**2).sum()
    rate = (mass + 2.0) / (size + mass + 5.0)
    usual = size**0.5 * (1.0 - 1.0 / (4.0 * size) + 1.0 / (21.0 * size**2))
    path, step = np.zeros(size), STEP
    for number in range(generations):
        seeds = range(first + number * PLAYED, first + (number + 1) * PLAYED)
        tried = rng.normal(size=(count, size))
        values = [worth(mean + step * each, seeds) for each in tried]
        went = weights @ tried[np.argsort(values)[::-1][: len(weights)]]
        mean = mean + step * went
        path = (1.0 - rate) * path + np.sqrt(rate * (2.0 - rate) * mass) * went
        step *= np.exp(rate / (1.0 + rate) * (np.linalg.norm(path) / usual - 1.0))
    return mean

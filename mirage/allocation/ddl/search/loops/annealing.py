"""Simulated annealing over orders: a task goes elsewhere, or two change places."""

from __future__ import annotations

import math

import numpy as np

from mirage.allocation.ddl.search.loops.compile import compiled
from mirage.allocation.ddl.search.loops.layout import Goal, Orders, Scratch, Stage
from mirage.allocation.ddl.search.loops.playing import cost

INSERTIONS = 0.6
"""Of the moves; the others are exchanges."""


@compiled
def anneal(stage: Stage, scratch: Scratch, goal: Goal, orders: Orders, draws: np.ndarray, heat: float) -> None:
    """As many moves as ``draws`` (moves, 5), uniform in [0, 1), has rows.

    A move that costs more is taken with probability exp(-more / heat).
    """
    count = orders.current.shape[0]
    for m in range(draws.shape[0]):
        for i in range(count):
            orders.trial[i] = orders.current[i]
        _move(orders.trial, draws, m)
        found = cost(stage, scratch, goal, orders.trial)
        more = found - orders.costs[1]
        if more <= 0.0 or draws[m, 4] < math.exp(-more / heat):
            _accept(orders, found)


@compiled
def _move(order: np.ndarray, draws: np.ndarray, m: int) -> None:
    """Short ways are as likely as long ones: the distance is log-uniform."""
    count = order.shape[0]
    i, distance = int(draws[m, 0] * count), int(math.exp(draws[m, 1] * math.log(count)))
    j = min(i + distance, count - 1) if draws[m, 2] < 0.5 else max(i - distance, 0)
    task = order[i]
    if draws[m, 3] >= INSERTIONS:
        order[i], order[j] = order[j], task
        return
    step = 1 if j > i else -1
    for k in range(i, j, step):
        order[k] = order[k + step]
    order[j] = task


@compiled
def _accept(orders: Orders, found: float) -> None:
    better = found < orders.costs[0]
    for i in range(orders.current.shape[0]):
        orders.current[i] = orders.trial[i]
        if better:
            orders.best[i] = orders.trial[i]
    orders.costs[1] = found
    if better:
        orders.costs[0] = found

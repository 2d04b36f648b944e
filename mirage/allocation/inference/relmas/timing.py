"""Measure the decision time of an agent on this machine: for a given number of requests, on one core."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from mirage.domain.units import SystemView

if TYPE_CHECKING:
    from mirage.allocation.inference.relmas.policies import LearnedPolicy
    from mirage.domain.request import CostTable
    from mirage.domain.units import UnitSystem

READY, REPEATS = 64, 200

CORE_WATTS = 5.0
"""Assumed power of a decision: the share of a busy core in a server's CPU."""


def seconds_of(policy: LearnedPolicy, costs: CostTable, system: UnitSystem, ready: int = READY) -> float:
    """Fewest seconds for which one scoring keeps a core busy: time taken by other processes does not count."""
    view = crowd(costs, system, ready)
    taken = []
    for _ in range(REPEATS):
        begun = time.thread_time()
        policy.scores(view)
        taken.append(time.thread_time() - begun)
    return min(taken)


def crowd(costs: CostTable, system: UnitSystem, ready: int) -> SystemView:
    """A state in which this many requests of all models wait, and no unit runs."""
    units, model = len(system.names), np.arange(ready, dtype=np.int32) % len(costs.models)
    piece = costs.first[model]
    needed = np.nanmin(costs.remaining()[piece], axis=1)
    now = 1.0
    return SystemView(
        now=now,
        system=system,
        costs=costs,
        request=np.arange(ready),
        model=model,
        piece=piece,
        tenant=np.zeros(ready, np.int32),
        arrival=np.full(ready, now),
        deadline=now + needed * (1.0 + np.arange(ready) % 7),
        weight=np.ones(ready),
        ready_since=np.full(ready, now),
        served=np.zeros(ready),
        running=np.full(units, -1),
        running_piece=np.full(units, -1),
        running_deadline=np.full(units, np.inf),
        running_weight=np.zeros(units),
        free_at=np.zeros(units),
        drawn=np.zeros(units),
        tenant_ended=np.zeros(1, np.int64),
        tenant_kept=np.zeros(1, np.int64),
    )

"""Policies that score the ready requests once per period, and the time that a scoring takes on this machine.

The scores are kept until the next period. The time is measured for a given number of requests, on one core.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from mirage.domain.inference import SystemView

if TYPE_CHECKING:
    from mirage.allocation.inference.relmas import LearnedPolicy
    from mirage.domain.inference import CostTable, DeviceSet, Dispatch

READY, REPEATS = 64, 200

CORE_WATTS = 5.0
"""Assumed power of a decision: the share of a busy core in a server's CPU."""


def seconds_of(policy: LearnedPolicy, costs: CostTable, system: DeviceSet, ready: int = READY) -> float:
    """Fewest seconds for which one scoring keeps a core busy: time taken by other processes does not count."""
    view = crowd(costs, system, ready)
    taken = []
    for _ in range(REPEATS):
        begun = time.thread_time()
        policy.scores(view)
        taken.append(time.thread_time() - begun)
    return min(taken)


def crowd(costs: CostTable, system: DeviceSet, ready: int) -> SystemView:
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


Float64 = NDArray[np.float64]
Int32 = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class RequestScores:
    """Scores of some ready requests (N); 0 is the plain matcher. See ``kernel/scored.py``."""

    rows: Int32
    """[N] Rows of the view's ready requests, then of running ones in the order of their units."""
    kept: Float64
    """[N, KINDS + K] Columns as in ``kernel.scored``: kept by request, also for its later segments."""
    coming: Float64
    """[M, KINDS + K] Initial scores of requests of each model that arrive before the next scoring."""

    @classmethod
    def of_coming(cls, coming: Float64) -> RequestScores:
        """Scores that change no present request."""
        return cls(np.zeros(0, np.int32), coming[:0], coming)


@runtime_checkable
class ScoredPolicy(Protocol):
    """A ``RequestPolicy`` whose scores a compiled matcher can use without a call until the next period."""

    @property
    def name(self) -> str:
        """Name of the policy, as in options."""

    @property
    def period(self) -> float:
        """Seconds between two scorings."""

    @property
    def parameters(self) -> Float64:
        """[SETTINGS] Settings of ``kernel.scored.decide_scored``."""

    def begin(self) -> None:
        """See ``ports.RequestPolicy``."""

    def decide(self, view: SystemView) -> Dispatch:
        """See ``ports.RequestPolicy``."""

    def scores(self, view: SystemView) -> RequestScores:
        """Scores of the view's requests, to be kept until the next period."""

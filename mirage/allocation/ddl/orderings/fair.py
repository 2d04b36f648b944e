"""Ordering policies by attained service; run times need not be known."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from mirage.allocation.ddl.orderings.service import width
from mirage.domain.errors import ConfigError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mirage.domain.pool import Pool, PoolView
    from mirage.domain.task import TaskTable

HOUR_S = 3600.0


class LeastAttained:
    """Discretised 2D-LAS: queues by attained device-time, first come first served in each.

    Gu et al., "Tiresias: A GPU cluster manager for distributed deep learning", NSDI 2019, section 3.2. Its
    promotion of starved tasks (PROMOTEKNOB) is left out, as in its evaluation. It has little effect without
    preemption, and with preemption it needs a quantum: a task that changes its queue is no event.
    """

    name = "las"

    def __init__(self, thresholds: tuple[float, ...] = (HOUR_S, 10 * HOUR_S)) -> None:
        """``thresholds``: device-seconds at which a task moves down to the next queue, ascending."""
        self._thresholds = np.array(thresholds)

    def static_scores(self, tasks: TaskTable) -> None:
        """None: even without preemption, a restarted task has attained some service."""

    def score(self, view: PoolView) -> NDArray[np.float64]:
        """The number of the queue; ties by submission."""
        attained = (view.served * width(view.tasks))[view.pending]
        return np.searchsorted(self._thresholds, attained, side="right").astype(np.float64)


class DominantShare:
    """DRF: the tenant with the smallest dominant share, of devices, CPUs or memory, is next.

    Ghodsi et al., "Dominant resource fairness", NSDI 2011: progressive filling, which gives one task after the
    other to the tenant with the smallest share. A tenant's tasks are ordered by submission; tasks without a tenant
    count as one tenant's. A task's score is the share of its tenant at its turn, if all before it have started.
    """

    name = "drf"

    def static_scores(self, tasks: TaskTable) -> None:
        """None: shares change."""

    def score(self, view: PoolView) -> NDArray[np.float64]:
        """Positions in the order of filling."""
        needs = _fractions(view.tasks, view.pool)
        tenants = view.tasks.tenant.codes + 1
        had = np.zeros((int(tenants.max(initial=0)) + 1, needs.shape[1]))
        candidates = set(view.pending.tolist())
        runs = np.array([t for t in view.running if int(t) not in candidates], dtype=np.int64)
        np.add.at(had, tenants[runs], needs[runs])
        return _filled(had, needs[view.pending], tenants[view.pending])


def _filled(
    had: NDArray[np.float64], needs: NDArray[np.float64], tenants: NDArray[np.int32]
) -> NDArray[np.float64]:
    """Position of each in progressive filling."""
    queues = {int(tenant): np.flatnonzero(tenants == tenant).tolist() for tenant in np.unique(tenants)}
    places = np.zeros(len(tenants))
    for place in range(len(tenants)):
        poorest = min(queues, key=lambda tenant: (had[tenant].max(), queues[tenant][0]))
        task = queues[poorest].pop(0)
        places[task] = place
        had[poorest] += needs[task]
        if not queues[poorest]:
            del queues[poorest]
    return places


def _fractions(tasks: TaskTable, pool: Pool) -> NDArray[np.float64]:
    """[T, 3] Each task's part of all devices, CPUs, memory."""
    wanted = np.stack([tasks.devices * tasks.share, tasks.cpus, tasks.memory_mb], axis=1).astype(np.float64)
    there = np.array([len(pool.device_node), pool.cpus.sum(), pool.memory_mb.sum()], dtype=np.float64)
    return np.asarray(wanted / np.maximum(there, 1.0))


def las(hours: str = "1:10") -> LeastAttained:
    """Parse ``las:0.5:4``: device-hours at which a task moves down a queue. Raises ``ConfigError``."""
    try:
        bounds = tuple(float(hour) * HOUR_S for hour in hours.split(":"))
    except ValueError:
        bounds = ()
    if not bounds or bounds[0] <= 0 or any(a >= b for a, b in pairwise(bounds)):
        raise ConfigError("ordering las", f"expected ascending device-hours above 0, such as 1:10, not {hours!r}")
    return LeastAttained(bounds)

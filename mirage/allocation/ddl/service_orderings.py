"""Ordering policies by device-time: the area of a task, all of it, the rest, or what it has attained.

Attained service needs no run times. QSSF estimates them from tasks that have ended.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from mirage.allocation.ddl.encode import LinearScores
from mirage.domain.errors import ConfigError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mirage.domain.pool import Pool, PoolView, TaskTable


def width(tasks: TaskTable) -> NDArray[np.float64]:
    """[T] Devices, with shares counted as such; at least a small number, to order tasks without devices."""
    return np.maximum(tasks.devices * tasks.share, 1e-3)


class LeastRemaining:
    """Estimated time left times devices to a power; tasks without an estimate come last.

    The power 0 is SRTF, 1 is SRSF (Gu et al., "Tiresias", NSDI 2019, section 3.1). Needs ``expected``.
    """

    def __init__(self, power: float = 1.0) -> None:
        """``power``: exponent of the number of devices."""
        self.power = power
        self.name = "srtf" if power == 0 else "srsf"

    def static_scores(self, tasks: TaskTable) -> NDArray[np.float64]:
        """Before a task starts, all of it is left."""
        return np.nan_to_num(tasks.expected, nan=np.inf) * self._factor(tasks)

    def linear_scores(self, tasks: TaskTable) -> LinearScores:
        """See ``scores.LinearOrdering``."""
        return LinearScores(np.zeros(len(tasks)), self._factor(tasks), np.zeros(len(tasks)))

    def score(self, view: PoolView) -> NDArray[np.float64]:
        """See ``ports.Ordering``."""
        left = np.nan_to_num(view.remaining[view.pending], nan=np.inf)
        return np.asarray(left * self._factor(view.tasks)[view.pending])

    def _factor(self, tasks: TaskTable) -> NDArray[np.float64]:
        return np.asarray(width(tasks) ** self.power)


class Area:
    """Estimated run time times devices, independent of progress; tasks without an estimate come last.

    The smallest first is Smith's rule on the pool as one machine: a lower bound of the mean completion time is
    based on this order. The largest first (LPT) is for the makespan. Needs ``expected``.
    """

    def __init__(self, name: str, *, largest: bool) -> None:
        """``largest``: the largest area first, instead of the smallest."""
        self.name = name
        self._sign = -1.0 if largest else 1.0

    def static_scores(self, tasks: TaskTable) -> NDArray[np.float64]:
        """See ``ports.Ordering``."""
        return np.nan_to_num(self._sign * tasks.expected * width(tasks), nan=np.inf)

    def score(self, view: PoolView) -> NDArray[np.float64]:
        """See ``ports.Ordering``."""
        return self.static_scores(view.tasks)[view.pending]


def srtf() -> LeastRemaining:
    """The shortest remaining time first."""
    return LeastRemaining(0.0)


def srsf(power: str = "1") -> LeastRemaining:
    """The smallest remaining service first; raises ``ConfigError`` for an invalid power."""
    try:
        return LeastRemaining(float(power))
    except ValueError:
        raise ConfigError("ordering srsf", f"the power of the devices must be a number, not {power!r}") from None


def smallest_service() -> Area:
    """The smallest area first."""
    return Area("ssf", largest=False)


def lpt() -> Area:
    """The largest area first."""
    return Area("lpt", largest=True)


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


class QuasiShortest:
    """Quasi-shortest service first: estimated run time times devices; no run time need be known beforehand.

    Hu et al., "Characterization and prediction of deep learning workloads in large-scale GPU datacenters", SC
    2021, section 4.2, its rolling estimate without the learned half. The estimate is the mean service of the most
    similar tasks that have ended: same tenant, model and devices; else tenant and devices; else devices; else all.
    While no task has ended, all are equal, and the fewest devices come first.
    """

    name = "qssf"

    def static_scores(self, tasks: TaskTable) -> None:
        """None: estimates change with each end."""

    def score(self, view: PoolView) -> NDArray[np.float64]:
        """See ``ports.Ordering``."""
        return np.asarray(_estimates(view)[view.pending] * width(view.tasks)[view.pending])


def _estimates(view: PoolView) -> NDArray[np.float64]:
    """[T] Estimated run time in seconds."""
    ended = _ended(view)
    return means_alike(view.tasks, view.served, ended) if ended.any() else np.ones(len(view.tasks))


def likenesses(tasks: TaskTable) -> list[NDArray[np.int64]]:
    """[T] each: equal numbers for similar tasks, from coarse to fine: all; same devices; ..."""
    columns = (tasks.devices, tasks.tenant.codes, tasks.model.codes)
    finer = (np.unique(np.stack(columns[:depth], axis=1), axis=0, return_inverse=True)[1] for depth in (1, 2, 3))
    return [np.zeros(len(tasks), dtype=np.int64), *(groups.reshape(-1) for groups in finer)]


def means_alike(tasks: TaskTable, seconds: NDArray[np.float64], ended: NDArray[np.bool_]) -> NDArray[np.float64]:
    """[T] Mean of the most similar tasks that have ended; NaN where none has."""
    found = np.full(len(tasks), np.nan)
    for groups in likenesses(tasks):
        counts = np.bincount(groups[ended], minlength=len(tasks) + 1)
        sums = np.bincount(groups[ended], seconds[ended], minlength=len(counts))
        known = counts[groups] > 0
        found[known] = (sums / np.maximum(counts, 1))[groups][known]
    return found


def _ended(view: PoolView) -> NDArray[np.bool_]:
    """Whether tasks have run, and neither run nor wait to be resumed."""
    ended = (view.served > 0) & (view.task_node < 0)
    ended[view.pending] = False
    return ended

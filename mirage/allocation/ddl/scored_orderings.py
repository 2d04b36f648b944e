"""Ordering policies by constant scores or by a formula of a task's needs, run time and waiting time.

Constant are the scores by submission and by estimated run time. Tasks without any information get an estimate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mirage.allocation.ddl.service_orderings import width

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mirage.domain.pool import PoolView, TaskTable


class Fifo:
    """First come, first served."""

    name = "fifo"

    def static_scores(self, tasks: TaskTable) -> NDArray[np.float64]:
        """See ``ports.Ordering``."""
        return tasks.submit

    def score(self, view: PoolView) -> NDArray[np.float64]:
        """See ``ports.Ordering``."""
        return view.tasks.submit[view.pending]


class ShortestFirst:
    """The shortest estimated run time first; tasks without an estimate come last."""

    name = "sjf"

    def static_scores(self, tasks: TaskTable) -> NDArray[np.float64]:
        """See ``ports.Ordering``."""
        return np.nan_to_num(tasks.expected, nan=np.inf)

    def score(self, view: PoolView) -> NDArray[np.float64]:
        """See ``ports.Ordering``."""
        return self.static_scores(view.tasks)[view.pending]


NOTHING_KNOWN_S = 3600.0
"""Run time assumed for all tasks if no run time is known: any number serves, because only ratios matter."""


def guessed(lengths: NDArray[np.float64], devices: NDArray[np.int32]) -> NDArray[np.float64]:
    """``lengths`` (s), with NaN replaced by the median of tasks with as many devices, or the overall median."""
    known = ~np.isnan(lengths)
    if known.all():
        return lengths
    filled = np.where(known, lengths, np.median(lengths[known]) if known.any() else NOTHING_KNOWN_S)
    for count in np.unique(devices[~known]):
        alike = known & (devices == count)
        if alike.any():
            filled[~known & (devices == count)] = np.median(lengths[alike])
    return np.asarray(filled, dtype=np.float64)


def remaining(view: PoolView) -> NDArray[np.float64]:
    """[T] Estimated seconds left of each task; a guess where nothing is known."""
    known = ~np.isnan(view.remaining)
    if known.all():
        return view.remaining
    return np.where(known, view.remaining, guessed(view.tasks.expected, view.tasks.devices))


class _Changing:
    """Scores that change with time."""

    def static_scores(self, tasks: TaskTable) -> None:
        """None: they change."""


class Wfp3(_Changing):
    """WFP3: -(waited / run time)^3 x devices; an unknown run time is the median of tasks of its size.

    Tang et al., "Fault-aware, utility-based job scheduling on Blue Gene/P systems", CLUSTER 2009.
    """

    name = "wfp3"

    def score(self, view: PoolView) -> NDArray[np.float64]:
        """See ``ports.Ordering``."""
        length, waited = _length(view), view.now - view.tasks.submit[view.pending]
        return np.asarray(-((waited / length) ** 3) * width(view.tasks)[view.pending])


class F1:
    """F1: log10(run time) x devices + 870 log10(submitted); NaN as with ``Wfp3``.

    Carastan-Santos and de Camargo, "Obtaining dynamic scheduling policies with simulation and machine learning",
    SC 2017, table 3. Submission counts from the table's zero, in seconds, at least 1.
    """

    name = "f1"

    def static_scores(self, tasks: TaskTable) -> NDArray[np.float64]:
        """See ``ports.Ordering``."""
        length = np.maximum(guessed(tasks.expected, tasks.devices), 1.0)
        return np.asarray(np.log10(length) * width(tasks) + 870.0 * np.log10(np.maximum(tasks.submit, 1.0)))

    def score(self, view: PoolView) -> NDArray[np.float64]:
        """See ``ports.Ordering``."""
        return self.static_scores(view.tasks)[view.pending]


class Tetris(_Changing):
    """Tetris: alignment of needs with what is free, less what is left; the largest first.

    Grandl et al., "Multi-resource packing for cluster schedulers", SIGCOMM 2014: a + e p, where a is the dot
    product of a task's needs and of what is free (both in parts of the pool), p is minus the work that is left
    (needs times time), and e the ratio of the mean of a to that of p. There a is of one machine; here of the whole
    pool, because tasks are gangs: the placement policy chooses the machine. NaN as with ``Wfp3``.
    """

    name = "tetris"

    def score(self, view: PoolView) -> NDArray[np.float64]:
        """See ``ports.Ordering``."""
        needs, free = _parts(view)
        aligned = needs[view.pending] @ free
        work = remaining(view)[view.pending] * needs[view.pending].sum(axis=1)
        scale = aligned.mean() / work.mean() if len(work) and work.mean() > 0 else 0.0
        return np.asarray(scale * work - aligned)


class EarliestDeadline:
    """EDF: the earliest deadline first; tasks without one come last."""

    name = "edf"

    def static_scores(self, tasks: TaskTable) -> NDArray[np.float64]:
        """See ``ports.Ordering``."""
        return np.nan_to_num(tasks.deadline, nan=np.inf)

    def score(self, view: PoolView) -> NDArray[np.float64]:
        """See ``ports.Ordering``."""
        return self.static_scores(view.tasks)[view.pending]


def _length(view: PoolView) -> NDArray[np.float64]:
    return np.maximum(guessed(view.tasks.expected, view.tasks.devices)[view.pending], 1.0)


def _parts(view: PoolView) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """[T, 3] and [3]: needs and free resources of devices, CPUs and memory, as parts of the pool."""
    tasks, pool = view.tasks, view.pool
    there = np.array([len(pool.device_node), pool.cpus.sum(), pool.memory_mb.sum()], dtype=np.float64)
    free = np.array([view.free.sum(), view.free_cpus.sum(), view.free_memory_mb.sum()], dtype=np.float64)
    needs = np.stack([tasks.devices * tasks.share, tasks.cpus, tasks.memory_mb], axis=1).astype(np.float64)
    return needs / np.maximum(there, 1.0), free / np.maximum(there, 1.0)

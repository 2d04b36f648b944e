"""QSSF: run-time estimates from tasks that have ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mirage.allocation.ddl.orderings.service import width

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mirage.domain.pool import PoolView
    from mirage.domain.task import TaskTable


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

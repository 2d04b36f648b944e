"""QSSF: run times estimated from tasks that have ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mirage.allocation.ddl.orderings.service import width

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mirage.domain.pool import PoolView
    from mirage.domain.task import TaskTable


class QuasiShortest:
    """Quasi-shortest service first: estimated run time times devices; nothing need be known beforehand.

    Hu et al., "Characterization and prediction of deep learning workloads in large-scale GPU datacenters", SC
    2021, section 4.2, its rolling estimate without the learned half. The mean of the tasks that have ended (what
    they were served) and are most like it: of the same tenant, model and devices; else of tenant and devices;
    else of devices; else of all. While nothing has ended, all are equal, and the fewest devices come first.
    """

    name = "qssf"

    def static_scores(self, tasks: TaskTable) -> None:
        """None: estimates change with each end."""

    def score(self, view: PoolView) -> NDArray[np.float64]:
        """See ``ports.Ordering``."""
        return np.asarray(_estimates(view)[view.pending] * width(view.tasks)[view.pending])


def _estimates(view: PoolView) -> NDArray[np.float64]:
    """[T] Seconds."""
    tasks, ended = view.tasks, _ended(view)
    found = np.full(len(tasks), view.served[ended].mean() if ended.any() else 1.0)
    columns = (tasks.devices, tasks.tenant.codes, tasks.model.codes)
    for depth in (1, 2, 3):
        alike = np.unique(np.stack(columns[:depth], axis=1), axis=0, return_inverse=True)[1].reshape(-1)
        counts = np.bincount(alike[ended], minlength=int(alike.max(initial=0)) + 1)
        sums = np.bincount(alike[ended], view.served[ended], minlength=len(counts))
        known = counts[alike] > 0
        found[known] = (sums / np.maximum(counts, 1))[alike][known]
    return found


def _ended(view: PoolView) -> NDArray[np.bool_]:
    """Served, and neither running nor waiting to be resumed."""
    ended = (view.served > 0) & (view.task_node < 0)
    ended[view.pending] = False
    return ended

"""Run-time estimates of tasks.

The sources, in this order: the progress that a task reports, if it continues as before; what its owner expects;
the mean of similar tasks that have succeeded in this chain (``orderings.history``). For a task that has outlasted
its estimate, the median of similar tasks that lasted even longer decides, the most similar first. Without such
tasks it is estimated to be half done. That is the median for run times without a scale, for which the chance to
last longer than t is proportional to 1 / t.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mirage.allocation.ddl.orderings.history import likenesses, means_alike

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from mirage.allocation.engine.progress import Report
    from mirage.domain.task import TaskTable

    Floats = NDArray[np.float64]

TELLING = 60.0
"""Seconds of running from which on the reported progress replaces the other estimates."""


def expected(tasks: TaskTable, given: Floats, served: Floats, succeeded: NDArray[np.bool_]) -> Floats:
    """[T] Estimated total seconds of each task; NaN where nothing is known. ``given``: the owners' values."""
    if not succeeded.any() or not np.isnan(given).any():
        return given
    return np.where(np.isnan(given), means_alike(tasks, served, succeeded), given)


def remaining(
    tasks: TaskTable,
    believed: Floats,
    served: Floats,
    succeeded: NDArray[np.bool_],
    reports: Mapping[int, Report],
) -> Floats:
    """[T] Estimated seconds left of each task. ``believed``: see ``expected``."""
    left = believed - served
    outlasting = np.flatnonzero((left <= 0) & ~succeeded).tolist()
    alike = likenesses(tasks) if outlasting else []
    for row in outlasting:
        left[row] = _outlasting(row, served, succeeded, alike)
    for row, report in reports.items():
        told = report.left_of(float(served[row])) if served[row] >= TELLING else None
        if told is not None:
            left[row] = told
    return left


def _outlasting(row: int, served: Floats, succeeded: NDArray[np.bool_], alike: list[NDArray[np.int64]]) -> float:
    for groups in reversed(alike):
        longer = served[succeeded & (groups == groups[row]) & (served > served[row])]
        if longer.size:
            return float(np.median(longer) - served[row])
    return float(served[row])

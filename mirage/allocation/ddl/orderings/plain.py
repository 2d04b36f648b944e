"""Ordering policies with constant scores: by submission, by estimated run time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mirage.domain.pool import PoolView
    from mirage.domain.task import TaskTable


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

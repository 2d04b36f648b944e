"""Build the view of a real allocation that ordering policies and placement policies get.

Sources of run-time estimates, in this order: the progress that a task reports, if it continues as before; what
its owner expects; the mean of similar tasks that have succeeded in this chain (``ddl.service_orderings``). For
a task that has outlasted its estimate, the median of similar tasks that lasted even longer decides, the most
similar first. Without such tasks it is estimated to be half done. That is the median for run times without a
scale, for which the chance to last longer than t is proportional to 1 / t.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from mirage.allocation.ddl.estimation import NOTHING, estimate
from mirage.allocation.ddl.service_orderings import likenesses, means_alike
from mirage.allocation.ddl.speeds import partial_speed_table
from mirage.domain.pool import PoolView

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from mirage.allocation.ddl.speeds import Measurements
    from mirage.allocation.engine.allocation_table import AllocationTable
    from mirage.allocation.engine.plan import WorkPlan
    from mirage.allocation.engine.task_interface import ProgressReport
    from mirage.allocation.engine.task_states import TaskStates
    from mirage.domain.pool import Pool, SpeedTable, TaskTable

if TYPE_CHECKING:
    Floats = NDArray[np.float64]

TELLING = 60.0
"""Seconds of running from which on the reported progress replaces the other estimates."""


def estimated_run_times(tasks: TaskTable, given: Floats, served: Floats, succeeded: NDArray[np.bool_]) -> Floats:
    """[T] Estimated total seconds of each task; NaN where nothing is known. ``given``: the owners' values."""
    if not succeeded.any() or not np.isnan(given).any():
        return given
    return np.where(np.isnan(given), means_alike(tasks, served, succeeded), given)


def estimated_remaining(
    tasks: TaskTable,
    believed: Floats,
    served: Floats,
    succeeded: NDArray[np.bool_],
    reports: Mapping[int, ProgressReport],
) -> Floats:
    """[T] Estimated seconds left of each task. ``believed``: see ``estimated_run_times``."""
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


LEARN_EVERY = 60.0
"""Seconds between two tables of speeds."""


@dataclass(slots=True)
class Situation:
    """The tasks and their run-time estimates."""

    plan: WorkPlan
    table: TaskTable
    speeds: SpeedTable
    zero: float
    """Time zero of the table, in epoch seconds."""
    given: Measurements = NOTHING
    """The speeds estimated before any measurement."""
    reports: Mapping[int, ProgressReport] = field(default_factory=dict)
    """Last reported progress of tasks, by row."""
    _learnt: tuple[float, float] = (-math.inf, -1.0)
    """When the last table was built, and from how many measured seconds."""

    def learn(self, now: float, pool: Pool, ledger: TaskStates) -> None:
        """Update the table of speeds with the measurements up to now."""
        at, known = self._learnt
        measured = ledger.evidence.total
        if now - at >= LEARN_EVERY and measured != known:
            self._learnt = now, measured
            self.speeds = partial_speed_table(estimate(ledger.evidence, self.given), self.table, pool)

    def view(
        self,
        now: float,
        pending: Sequence[int],
        running: Mapping[int, float],
        book: AllocationTable,
        ledger: TaskStates,
    ) -> PoolView:
        """``pending``: rows, including running tasks that can be preempted; ``running``: start by row."""
        count = len(self.plan.tasks)
        held = [sorted(book.holdings[row].devices) if row in book.holdings else [] for row in range(count)]
        first = [book.holdings[row].nodes[0] if row in book.holdings else -1 for row in range(count)]
        cpus, memory = book.free_nodes()
        served = self._served(now, running, ledger)
        remaining = self._believe(served, ledger)
        return PoolView(
            now=now - self.zero,
            pool=book.pool,
            tasks=self.table,
            speeds=self.speeds,
            pending=np.array(sorted(pending), np.int32),
            running=np.array(sorted(running.keys() & book.holdings.keys()), np.int32),
            held_from=np.array([0, *itertools.accumulate(map(len, held))], np.int32),
            held=np.array(list(itertools.chain.from_iterable(held)), np.int32),
            task_node=np.array(first, np.int32),
            free=book.free_devices(),
            free_cpus=cpus,
            free_memory_mb=memory,
            served=served,
            remaining=remaining,
        )

    def _served(self, now: float, running: Mapping[int, float], ledger: TaskStates) -> np.ndarray:
        """[T] Seconds whose work is kept: of earlier attempts and the running one."""
        served = np.array([ledger.served(task.name) for task in self.plan.tasks], np.float64)
        for row, start in running.items():
            served[row] += now - start
        return served

    def _believe(self, served: np.ndarray, ledger: TaskStates) -> np.ndarray:
        """[T] Estimated seconds left. Returns the same table until it changes: plans depend on its identity."""
        succeeded = np.array([ledger.succeeded(task.name) for task in self.plan.tasks], bool)
        given = np.array([math.nan if task.expected is None else task.expected for task in self.plan.tasks])
        expected = estimated_run_times(self.table, given, served, succeeded)
        if not np.array_equal(expected, self.table.expected, equal_nan=True):
            self.table = replace(self.table, expected=expected)
        return estimated_remaining(self.table, expected, served, succeeded, self.reports)

"""Result of a run in the pool: which task ran when and where, and the figures by which runs are compared."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from mirage.domain.pool import Pool, TaskTable

Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Segments:
    """Use of devices by tasks over time; columns of equal length, in the order in which devices were released."""

    task: Int64
    device: Int64
    start: Float64
    end: Float64

    def __len__(self) -> int:
        return len(self.task)


@dataclass(frozen=True, slots=True)
class TaskRunFigures:
    """Figures of a run; times in seconds, over the tasks that ended."""

    tasks: int
    ended: int
    mean_jct: float
    """Job completion time: from submission to end."""
    p99_jct: float
    makespan: float
    """From the first submission to the last end."""
    fee: float
    """Dollars: price x share of the device x hours held, over all tasks."""
    utilisation: float
    """Device-seconds held / (devices x makespan)."""
    fragmentation: float
    """Share of the device-seconds that were free, of all in which a task waited."""
    mean_fairness: float
    """Mean finish-time fairness; see ``TaskRunResult.fairness``."""
    worst_fairness: float
    preemptions: int


@dataclass(frozen=True)
class TaskRunResult:
    """Columns by task; NaN for events that have not happened."""

    tasks: TaskTable
    pool: Pool
    start: Float64
    """The first start."""
    end: Float64
    served: Float64
    """Seconds run, including those lost at resumptions."""
    preemptions: Int64
    fee: Float64
    segments: Segments
    fragmentation: float

    @cached_property
    def jct(self) -> Float64:
        """From submission to end."""
        return self.end - self.tasks.submit

    @cached_property
    def fairness(self) -> Float64:
        """Finish-time fairness rho of each task: JCT / the time in an equal share of the pool.

        Mahajan et al., "Themis: Fair and efficient GPU cluster scheduling", NSDI 2020, section 3: the share is 1/N
        of the pool, N the mean number of tasks that were in the pool (waiting or running) during its life. A task
        needs its devices together: in a share with fewer devices it would run that fraction of the time. At most
        1: not worse off than alone with its share.
        """
        contenders = self._contenders()
        devices = np.maximum(self.tasks.devices * self.tasks.share, 0)
        slowed = np.maximum(1.0, devices * contenders / max(len(self.pool.device_node), 1))
        alone = np.where(self.tasks.work > 0, self.tasks.work * slowed, np.nan)
        return np.asarray(self.jct / alone, dtype=np.float64)

    def _contenders(self) -> Float64:
        """Mean number of tasks in the pool during the life of each task."""
        times = np.concatenate([self.tasks.submit, self.end])
        steps = np.concatenate([np.ones(len(self.end)), -np.ones(len(self.end))])
        order = np.argsort(times, kind="stable")
        times, present = times[order], np.cumsum(steps[order])
        lasting = np.append(np.diff(times), 0.0)
        area = np.concatenate([[0.0], np.cumsum(present * lasting)])
        there = np.interp(np.concatenate([self.tasks.submit, self.end]), times, area[:-1])
        count = len(self.end)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(self.jct > 0, (there[count:] - there[:count]) / self.jct, 1.0)

    @cached_property
    def figures(self) -> TaskRunFigures:
        """The figures of the run."""
        ended = ~np.isnan(self.end)
        jct, fairness = self.jct[ended], self.fairness[ended]
        makespan = float(self.end[ended].max() - self.tasks.submit.min()) if ended.any() else np.nan
        capacity = len(self.pool.device_node) * makespan
        held = float((self.served * self.tasks.devices * self.tasks.share).sum())
        fair = fairness[~np.isnan(fairness)]
        return TaskRunFigures(
            tasks=len(self.end),
            ended=int(ended.sum()),
            mean_jct=float(jct.mean()) if len(jct) else np.nan,
            p99_jct=float(np.percentile(jct, 99)) if len(jct) else np.nan,
            makespan=makespan,
            fee=float(self.fee.sum()),
            utilisation=held / capacity if capacity > 0 else np.nan,
            fragmentation=self.fragmentation,
            mean_fairness=float(fair.mean()) if len(fair) else np.nan,
            worst_fairness=float(fair.max()) if len(fair) else np.nan,
            preemptions=int(self.preemptions.sum()),
        )

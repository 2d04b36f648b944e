"""One pool of CPUs and what is submitted to it, as every simulator can read it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mirage.domain.job import ABSENT
from mirage.simulator.easy import mean_bounded_slowdown, pool_jobs, pool_starts
from mirage.trace.swf import Field

if TYPE_CHECKING:
    from pathlib import Path

    from mirage.domain.jobtable import Int32, JobTable
    from mirage.simulator.easy import Int64

_SUBMIT, _RUNTIME, _REQUEST, _WIDTH = range(4)


@dataclass(frozen=True, slots=True)
class Workload:
    """Jobs that ran, in order of submission."""

    name: str
    jobs: Int64
    """Shape (jobs, 4): submit, run time, request (s), CPUs; the run time is at most the request."""
    processors: int

    def starts(self) -> Int64:
        """By our simulator, the core alone."""
        return pool_starts(self.jobs, self.processors)

    def figures(self, starts: Int64) -> tuple[float, float]:
        """Mean wait (s) and mean bounded slowdown of a schedule of these jobs."""
        wait = starts - self.jobs[:, _SUBMIT]
        return float(wait.mean()), mean_bounded_slowdown(wait, self.jobs[:, _RUNTIME])

    def write(self, path: Path) -> None:
        """As a log of the Standard Workload Format: job numbers from 1, one user, no memory.

        Run times are capped at the request: what programs do beyond it is no matter of backfilling.
        """
        count = len(self.jobs)
        rows = np.full((count, len(Field)), ABSENT, dtype=np.int64)
        rows[:, Field.JOB_NUMBER] = np.arange(1, count + 1)
        rows[:, Field.SUBMIT_TIME], rows[:, Field.RUN_TIME] = self.jobs[:, _SUBMIT], self.jobs[:, _RUNTIME]
        rows[:, Field.REQUESTED_TIME] = self.jobs[:, _REQUEST]
        rows[:, (Field.ALLOCATED_PROCESSORS, Field.REQUESTED_PROCESSORS)] = self.jobs[:, _WIDTH, None]
        rows[:, (Field.STATUS, Field.USER, Field.GROUP)] = 1
        header = {"MaxJobs": count, "MaxProcs": self.processors, "MaxNodes": self.processors, "UnixStartTime": 0}
        text = "\n".join(f" {name}: {value}" for name, value in header.items())
        np.savetxt(path, rows, fmt="%d", header=text, comments=";")


def pool_workload(name: str, table: JobTable, width: Int32, processors: int) -> Workload:
    """Of a table's jobs those that ran for a second or more; ``width``: what each takes of the pool."""
    ran = table.take(table.runtime > 0)
    submit = ran.submit - ran.submit.min() + 1
    jobs, _ = pool_jobs(submit, ran.runtime, ran.limit, width[table.runtime > 0].astype(np.int64), processors)
    return Workload(name, jobs, processors)

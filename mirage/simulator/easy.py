"""EASY and FIFO on one pool of CPUs, for comparison with the literature.

The convention is in ``mirage.simulator.kernel.pool``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mirage.domain.job import ABSENT
from mirage.simulator.kernel.pool import run_pool

Int64 = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class PoolFigures:
    """Figures of a schedule that the literature quotes."""

    mean_wait: float
    """Seconds."""
    mean_bounded_slowdown: float
    """max(1, (wait + run) / max(run, 10 s)), Feitelson et al. 1997."""


def simulate_pool(
    submit: Int64, runtime: Int64, request: Int64, procs: Int64, capacity: int, backfill: bool = True
) -> Int64:
    """Start of each job (s); ``ABSENT`` for jobs that ask for no CPU or for more than ``capacity``.

    All columns have one entry a job. A request <= 0 is taken as the run time; the run time is capped at the
    request.
    """
    jobs, order = pool_jobs(submit, runtime, request, procs, capacity)
    result = np.full(len(submit), ABSENT, dtype=np.int64)
    result[order] = pool_starts(jobs, capacity, backfill)
    return result


def pool_jobs(submit: Int64, runtime: Int64, request: Int64, procs: Int64, capacity: int) -> tuple[Int64, Int64]:
    """The possible jobs in order of submission, as rows of (submit, runtime, request, CPUs), and whose."""
    runs, requests = _capped(np.asarray(runtime, dtype=np.int64), np.asarray(request, dtype=np.int64))
    possible = np.flatnonzero((np.asarray(procs) > 0) & (np.asarray(procs) <= capacity))
    order = possible[np.argsort(np.asarray(submit)[possible], kind="stable")]
    columns = (submit, runs, requests, procs)
    return np.ascontiguousarray(np.column_stack(columns).astype(np.int64)[order]), order


def pool_starts(jobs: Int64, capacity: int, backfill: bool = True) -> Int64:
    """Start of each row of ``pool_jobs``: the core alone."""
    starts = np.zeros(len(jobs), dtype=np.int64)
    work = np.empty((2, capacity + 1, 2), dtype=np.int64)
    run_pool(jobs, capacity, backfill, starts, work[0], work[1], np.empty(len(jobs), dtype=np.int64))
    return starts


def _capped(runtime: Int64, request: Int64) -> tuple[Int64, Int64]:
    wanted = np.where(request > 0, request, runtime)
    return np.minimum(runtime, wanted), wanted


def pool_figures(submit: Int64, runtime: Int64, request: Int64, start: Int64) -> PoolFigures:
    """Mean wait and mean bounded slowdown over the jobs that started."""
    ran, _ = _capped(runtime, request)
    started = start != ABSENT
    wait, run = (start - submit)[started], ran[started]
    return PoolFigures(float(wait.mean()), mean_bounded_slowdown(wait, run))


def mean_bounded_slowdown(wait: Int64, run: Int64) -> float:
    """Mean of max(1, (wait + run) / max(run, 10 s)), Feitelson et al. 1997."""
    return float(np.maximum(1.0, (wait + run) / np.maximum(run, 10)).mean())

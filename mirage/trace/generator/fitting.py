"""Fits a workload model to a job table."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from mirage.domain.errors import TraceError
from mirage.domain.job import ABSENT, JobState
from mirage.trace.generator.calendar_fit import fit_arrivals
from mirage.trace.generator.classes import class_of_jobs, fit_class
from mirage.trace.generator.habits import fit_chains, fit_habits, series_returns
from mirage.trace.generator.model import ExitCode, Gres, WorkloadModel, mean_batch_work
from mirage.trace.generator.sessions import find_sessions

if TYPE_CHECKING:
    from mirage.domain.jobtable import Int32, Int64, JobTable
    from mirage.trace.generator.model import Floats
    from mirage.trace.generator.sessions import Sessions

FEWEST_JOBS = 200
"""Below this a fit would say little and would show single jobs."""


def fit(table: JobTable, name: str, *, nodes: int | None = None) -> WorkloadModel:
    """The statistics of ``table`` (one queue, with limits and real starts and ends) as a model.

    ``nodes`` is the cluster's size; by default the largest number of nodes in use. Times may be
    epoch seconds or relative to ``table.origin``. What the table does not have (accounts, exit codes) is
    given plain defaults. Raises ``TraceError`` when the table is too small or has no limits or users.
    """
    usable = _usable(table)
    sessions = find_sessions(usable)
    size = nodes if nodes is not None else max(peak_nodes(usable), int(usable.nodes.max()))
    arrivals = fit_arrivals(usable, sessions)
    week = (usable.submit[sessions.first] + table.origin - arrivals.start) // 604_800
    classes = class_of_jobs(usable)
    returns = series_returns(usable, sessions)
    observed = _class_shares(classes[sessions.first], week, len(arrivals.weeks))
    fitted = tuple(
        fit_class(usable, sessions, classes == c, share, size, returns) for c, share in enumerate(observed)
    )
    work = np.array([mean_batch_work(c) for c in fitted])
    shares = _tilted(observed, work, _weekly_work(usable, sessions, week))
    return WorkloadModel(
        name=name,
        source=table.source or name,
        partition=_commonest(table.partition.decode()) or "main",
        nodes=size,
        cpus_per_node=_per_node(table.cpus, table.nodes),
        gres=tuple(
            Gres(gres, _per_node(table.gres[:, column], table.nodes))
            for column, gres in enumerate(table.gres_names)
        ),
        arrivals=arrivals,
        classes=tuple(replace(c, shares=tuple(share.tolist())) for c, share in zip(fitted, shares, strict=True)),
        habits=fit_habits(usable, sessions, classes),
        chains=fit_chains(usable, sessions),
        exit_codes=_exit_codes(usable),
    )


def peak_nodes(table: JobTable) -> int:
    """Return the largest number of nodes in use at the same time."""
    rows = np.flatnonzero((table.start != ABSENT) & (table.end != ABSENT))
    instants = np.concatenate([table.start[rows], table.end[rows]])
    change = np.concatenate([table.nodes[rows], -table.nodes[rows]])
    in_use = np.cumsum(change[np.lexsort((change, instants))])
    return int(in_use.max(initial=0))


def _usable(table: JobTable) -> JobTable:
    """The finished jobs with a user, a size and a limit."""
    kept = (table.limit > 0) & (table.nodes > 0) & (table.user.codes >= 0) & (table.end != ABSENT)
    if kept.sum() < FEWEST_JOBS:
        where = table.source or "the table"
        problem = f"only {kept.sum()} of {len(table)} jobs have user, nodes, limit, end; need {FEWEST_JOBS}"
        raise TraceError(where, 0, "", problem)
    return table.take(kept)


def _class_shares(job_class: Int64, week: Int64, weeks: int) -> Floats:
    """Share of each class (rows) among the batches of each week (columns)."""
    classes = int(job_class.max()) + 1
    counts = np.bincount(job_class * weeks + week, minlength=classes * weeks)
    table = counts.reshape(classes, weeks).astype(np.float64)
    # a few batches of the overall mix keep a week with little activity from being one user's portrait
    table += 20 * table.sum(axis=1, keepdims=True) / table.sum()
    return np.asarray(table / table.sum(axis=0))


def _weekly_work(table: JobTable, sessions: Sessions, week: Int64) -> Floats:
    """Mean node-seconds of the batches of each week, taken over three weeks."""
    of_batch = np.bincount(sessions.batch, table.nodes * table.runtime)
    work = np.bincount(week, of_batch)
    batches = np.bincount(week).astype(np.float64)
    around = [np.convolve(np.pad(c, 1, mode="edge"), (0.25, 0.5, 0.25), "valid") for c in (work, batches)]
    return np.asarray(around[0] / np.maximum(around[1], 1))


def _tilted(shares: Floats, work: Floats, target: Floats) -> Floats:
    """``shares`` (classes by weeks) with those of the heavy classes changed until the work is ``target``.

    When the queue is long, users submit no fewer batches but lighter ones; the classes' means do not show it.
    """
    pull = np.log(np.maximum(work, 1)) - np.log(np.maximum(work.mean(), 1))
    low, high = np.full(shares.shape[1], -1.0), np.full(shares.shape[1], 1.0)
    for _ in range(40):
        middle = (low + high) / 2
        tilted = shares * np.exp(pull[:, None] * middle)
        tilted /= tilted.sum(axis=0)
        light = work @ tilted < target
        low, high = np.where(light, middle, low), np.where(light, high, middle)
    return np.asarray(tilted)


def _exit_codes(table: JobTable) -> tuple[ExitCode, ...]:
    """The commonest exit codes of failed jobs; plain 1 where the table has none."""
    failed = table.exit_code[(table.state == JobState.FAILED) & (table.exit_code != 0)]
    codes, counts = np.unique(failed, return_counts=True)
    top = np.argsort(counts)[::-1][:6]
    if not len(failed):
        return (ExitCode(1, 1.0),)
    return tuple(ExitCode(int(codes[i]), float(counts[i] / counts[top].sum())) for i in top)


def _per_node(total: Int32, nodes: Int32) -> int:
    """Median of a resource's count per node over the jobs that have it; 1 where none has."""
    known = (total > 0) & (nodes > 0)
    return max(1, round(float(np.median(total[known] / nodes[known])))) if known.any() else 1


def _commonest(values: list[str]) -> str:
    return max(set(values), key=values.count) if values else ""

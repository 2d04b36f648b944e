"""Fits a workload model to a job table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mirage.domain.errors import TraceError
from mirage.domain.job import ABSENT, JobState
from mirage.trace.generator.arrivals import hour_of_week
from mirage.trace.generator.classes import class_of_jobs, fit_class
from mirage.trace.generator.habits import fit_chains, fit_habits
from mirage.trace.generator.model import HOURS_A_WEEK, Arrivals, ExitCode, Gres, WorkloadModel
from mirage.trace.generator.sessions import find_sessions

if TYPE_CHECKING:
    from mirage.domain.jobtable import Int32, Int64, JobTable
    from mirage.trace.generator.model import Floats

PERIOD_DAYS = 28
"""About how long one mix of classes is taken to last."""
FEWEST_JOBS = 200
"""Below this a fit would say little and would show single jobs."""


def fit(table: JobTable, name: str, *, nodes: int | None = None) -> WorkloadModel:
    """The statistics of ``table`` (one queue, with limits and real starts and ends) as a model.

    ``nodes`` is the cluster's size; by default the most nodes that were in use at once. Instants may be
    epoch seconds or relative to ``table.origin``. What the table does not have (accounts, exit codes) is
    given plain defaults. Raises ``TraceError`` when the table is too small or has no limits or users.
    """
    usable = _usable(table)
    sessions = find_sessions(usable)
    size = nodes if nodes is not None else max(peak_nodes(usable), int(usable.nodes.max()))
    arrivals = _arrivals(usable.submit[sessions.first] + table.origin, usable.submit + table.origin)
    periods = max(1, round(arrivals.days / PERIOD_DAYS))
    day = (usable.submit[sessions.first] + table.origin - arrivals.start) // 86_400
    classes = class_of_jobs(usable)
    counts = _class_counts(classes[sessions.first], day * periods // arrivals.days, periods)
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
        classes=tuple(
            fit_class(usable, sessions, classes == c, share, size) for c, share in enumerate(counts)
        ),
        habits=fit_habits(usable, sessions, classes),
        chains=fit_chains(usable, sessions),
        exit_codes=_exit_codes(usable),
    )


def peak_nodes(table: JobTable) -> int:
    """Most nodes in use at once."""
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


def _class_counts(job_class: Int64, period: Int64, periods: int) -> Floats:
    """Share of each class (rows) among the batches of each period (columns)."""
    classes = int(job_class.max()) + 1
    counts = np.bincount(job_class * periods + period, minlength=classes * periods)
    table = counts.reshape(classes, periods).astype(np.float64)
    # a few batches of the overall mix keep a period with little activity from being one user's portrait
    table += 20 * table.sum(axis=1, keepdims=True) / table.sum()
    return np.asarray(table / table.sum(axis=0))


def _arrivals(first: Int64, submit: Int64) -> Arrivals:
    """Calendar of the batches with the given first submissions (epoch seconds)."""
    start = int(submit.min()) // 86_400 * 86_400
    days = int((submit.max() - start) // 86_400) + 1
    day = (first - start) // 86_400
    weeks = np.bincount(day // 7, minlength=-(-days // 7)).astype(np.float64)
    weeks[-1] *= 7 / ((days - 1) % 7 + 1)
    mean = len(first) / days
    week_factor = weeks / 7 / mean
    hourly = _smoothed(np.bincount(hour_of_week(first), minlength=HOURS_A_WEEK).astype(np.float64))
    hourly /= hourly.mean()
    weekday = hourly.reshape(7, 24).mean(axis=1)
    expected = mean * week_factor[np.arange(days) // 7]
    expected *= weekday[hour_of_week(start + np.arange(days) * 86_400) // 24]
    return Arrivals(
        start=start,
        days=days,
        batches_per_day=mean,
        hour_of_week=tuple(hourly.tolist()),
        weeks=tuple(week_factor.tolist()),
        day_dispersion=_dispersion(np.bincount(day, minlength=days), expected),
    )


def _smoothed(hourly: Floats) -> Floats:
    """Each hour with half the weight, its neighbours with a quarter each."""
    return np.asarray(0.5 * hourly + 0.25 * (np.roll(hourly, 1) + np.roll(hourly, -1)))


def _dispersion(counts: Int64, expected: Floats) -> float:
    """Squared coefficient of variation of the days beyond Poisson's, by moments; busy days only."""
    busy = expected >= 0.25 * expected.mean()
    ratio = counts[busy] / expected[busy]
    # the weeks' level was fitted to the same days: one of seven degrees of freedom is gone
    return max(0.0, float((np.mean((ratio - 1) ** 2) - np.mean(1 / expected[busy])) * 7 / 6))


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

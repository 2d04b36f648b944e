"""Sorts jobs into classes of size and limit, and fits what the model says of each class."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mirage.domain.job import ABSENT, JobState
from mirage.trace.generator.jobs import TIMEOUT_SLACK
from mirage.trace.generator.model import LEVELS, SHORT_RUN, BatchSize, JobClass, Shape

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mirage.domain.jobtable import Int64, JobTable
    from mirage.trace.generator.model import Floats, Quantiles
    from mirage.trace.generator.sessions import Sessions

LIMIT_BANDS = tuple(int(h * 3600) for h in (0.5, 1, 2, 4, 12, 24, 48, 96, 168))
"""Upper ends (seconds, inclusive) of the bands of limits."""
NODE_BANDS = tuple(1 << k for k in range(2, 16))
"""Sizes 1, 2, 3-4, 5-8, 9-16, ... are kept apart."""
SMALLEST_CLASS = 40
"""Jobs; smaller classes join the one with the next smaller size or limit."""
FEWEST_USERS = 3
"""A class or request that fewer users make is theirs, not the queue's."""
MOST_SHAPES = 16
FEWEST_RETURNS = 40
"""Number of returns to a series from which a class gets a separate distribution."""
TRIM = 0.0025
"""Extremes beyond this probability are single jobs' and not kept."""
# lower ends of the ranges of batch sizes
SIZE_EDGES = np.array([1, 2, 3, 4, 5, 7, 10, 15, 22, 32, 46, 68, 100, 150, 220, 320, 460, 680, 1000])


def class_of_jobs(table: JobTable) -> Int64:
    """A class number, from 0 without gaps, for each job."""
    band = np.searchsorted(LIMIT_BANDS, table.limit)
    size = np.where(table.nodes <= 2, table.nodes - 1, np.searchsorted(NODE_BANDS, table.nodes) + 2)
    code = (band * 32 + size).astype(np.int64)
    users = table.user.codes
    # from the largest code down, so that a class too small carries what it took over to the next
    for low, high in zip(*(np.unique(code)[::-1][k:] for k in (1, 0)), strict=False):
        rows = code == high
        if rows.sum() < SMALLEST_CLASS or len(np.unique(users[rows])) < FEWEST_USERS:
            code[rows] = low
    return np.unique(code, return_inverse=True)[1].ravel().astype(np.int64)


def fit_class(
    table: JobTable, sessions: Sessions, rows: NDArray[np.bool_], shares: Floats, nodes: int, returns: Floats
) -> JobClass:
    """What the model says of the jobs ``rows`` (mask); ``shares`` of all batches by week.

    ``returns``: hours since the series' previous batch, for each batch of the table; NaN where none counts.
    """
    jobs = table.take(rows)
    ran = jobs.take(jobs.start != ABSENT)
    below = ran.take(ran.runtime < ran.limit - TIMEOUT_SLACK)
    batches = np.flatnonzero(rows[sessions.first])
    return JobClass(
        shares=tuple(shares.tolist()),
        shapes=_shapes(jobs, nodes),
        batch_sizes=_batch_sizes(sessions.size[batches]),
        new_series=_share_new(sessions.series[sessions.first[batches]]),
        series_return=_series_return(returns, batches),
        cancelled_pending=1 - len(ran) / len(jobs),
        timeout=1 - len(below) / max(len(ran), 1),
        runtime=_runtime(below),
        failed_short=_share(below.state[below.runtime < SHORT_RUN] == JobState.FAILED),
        failed_long=_share(below.state[below.runtime >= SHORT_RUN] == JobState.FAILED),
        cancelled_running=_share(below.state == JobState.CANCELLED),
    )


def quantiles(values: Floats) -> Quantiles:
    """Return ``values`` at the model's probability levels; zeros without values."""
    if not len(values):
        return (0.0,) * len(LEVELS)
    inner = np.clip(LEVELS, TRIM, 1 - TRIM)
    return tuple(np.maximum.accumulate(np.quantile(values, inner)).tolist())


def _series_return(returns: Floats, batches: Int64) -> Quantiles:
    """Of the class's batches; of all where it has too few."""
    own = returns[batches]
    own = own[~np.isnan(own)]
    return quantiles(own if len(own) >= FEWEST_RETURNS else returns[~np.isnan(returns)])


def _runtime(below: JobTable) -> Quantiles:
    """log10 of the share of the limit used; a job of 0 s counts as half a second."""
    return quantiles(np.log10(np.maximum(below.runtime, 0.5) / below.limit))


def _shapes(jobs: JobTable, nodes: int) -> tuple[Shape, ...]:
    """The commonest requests of several users; those of few count with their nearest common one."""
    request = np.stack([np.minimum(jobs.nodes, nodes).astype(np.int64), jobs.limit], axis=1)
    shapes, of_job = np.unique(request, axis=0, return_inverse=True)
    of_job = of_job.ravel()
    counts = np.bincount(of_job)
    pairs = np.unique(np.stack([of_job, jobs.user.codes], axis=1), axis=0)
    users = np.bincount(pairs[:, 0], minlength=len(shapes))
    kept = np.argsort(np.where(users >= FEWEST_USERS, counts, -1), kind="stable")[::-1][:MOST_SHAPES]
    kept = kept[users[kept] >= FEWEST_USERS]
    if not len(kept):
        kept = np.array([np.argmax(counts)])
    distance = np.abs(np.log(shapes[:, None, :] / shapes[None, kept, :])).sum(axis=2)
    weight = np.bincount(np.argmin(distance, axis=1), counts, minlength=len(kept)) / len(jobs)
    return tuple(Shape(int(shapes[s, 0]), int(shapes[s, 1]), float(w)) for s, w in zip(kept, weight, strict=True))


def _batch_sizes(size: Int64) -> tuple[BatchSize, ...]:
    """Sizes in ranges that widen, each standing as its mean."""
    if not len(size):
        return (BatchSize(1, 1.0),)
    part = np.searchsorted(SIZE_EDGES, size, side="right") - 1
    count = np.bincount(part)
    total = np.bincount(part, size)
    return tuple(
        BatchSize(round(float(total[p] / count[p])), float(count[p] / len(size))) for p in np.flatnonzero(count)
    )


def _share_new(series: Int64) -> float:
    """Share of the batches that are the first of their series."""
    return len(np.unique(series)) / max(len(series), 1)


def _share(mask: NDArray[np.bool_]) -> float:
    return float(mask.mean()) if len(mask) else 0.0

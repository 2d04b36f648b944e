"""Fits classes of size and limit, and how users come back: series, sessions, chains, and how alike jobs are."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from mirage.domain.job import ABSENT, JobState
from mirage.trace.generator.jobs import TIMEOUT_SLACK, standard_log_size, uniform_ranks
from mirage.trace.generator.model import (
    LEVELS,
    SHORT_RUN,
    BatchSize,
    Correlation,
    Habits,
    HandChains,
    JobClass,
    RequestShape,
)
from mirage.trace.generator.sessions import (
    CHAIN_LIMIT,
    find_continuations,
    met_long_limit,
    name_stems,
    numbered,
)

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


def _shapes(jobs: JobTable, nodes: int) -> tuple[RequestShape, ...]:
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
    return tuple(
        RequestShape(int(shapes[s, 0]), int(shapes[s, 1]), float(w)) for s, w in zip(kept, weight, strict=True)
    )


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


OUTSTANDING_LEVEL = 0.95
"""Share of the long batches whose users have no more unfinished work than the model then allows."""
FEWEST_ACCOUNTS = 12
"""Projects given to a workload whose source has no accounts."""


def fit_habits(table: JobTable, sessions: Sessions, job_class: Int64) -> Habits:
    """Habits of the users of ``table``."""
    user = table.user.codes.astype(np.int64)[sessions.first]
    series = sessions.series[sessions.first]
    known_class = numbered(user, job_class[sessions.first])
    submit = table.submit[sessions.first] / 3600
    opens = _is_first(series)
    joins = opens & ~_is_first(user)
    names = numbered(user, name_stems(table.name)[sessions.first])
    returns = ~_is_first(known_class)
    since_user, since_class = (_since_previous(keys, submit) for keys in (user, known_class))
    waiting = table.start == ABSENT
    unfinished = _unfinished(table, sessions)
    return Habits(
        new_user=float(_is_first(user).sum() / opens.sum()),
        same_class=_mean(returns[joins]),
        same_name=_mean(~_is_first(names)[joins]),
        user_return=quantiles(since_user[joins & ~returns]),
        class_return=quantiles(since_class[joins & returns]),
        gaps=quantiles(_gaps(table, sessions)),
        gap_correlation=_gap_correlation(table, sessions),
        runtime_correlation=_runtime_correlation(table, sessions, job_class),
        cancel_correlation=_correlation(waiting.astype(np.float64), sessions.series, sessions.batch),
        size_effect=_size_effect(table, sessions, job_class),
        alone=_mean(unfinished.of_series[unfinished.returns] == 0),
        most_outstanding=round(float(np.quantile(unfinished.nodes, OUTSTANDING_LEVEL)))
        if len(unfinished.nodes)
        else int(table.nodes.max()),
        leave=quantiles((table.end - table.submit)[waiting] / 3600),
        accounts=len(table.account.vocabulary) or FEWEST_ACCOUNTS,
    )


def fit_chains(table: JobTable, sessions: Sessions) -> HandChains:
    """How the users of ``table`` continue jobs that met a long limit."""
    pairs = find_continuations(table)
    gap = table.start[pairs.successor] > table.end[pairs.predecessor]
    lateness = (table.submit[pairs.successor] - table.end[pairs.predecessor])[gap]
    ended = np.unique(sessions.batch[met_long_limit(table)])
    links = np.unique(sessions.batch[pairs.predecessor[gap]])
    long = (table.limit >= CHAIN_LIMIT) & (table.start != ABSENT)
    return HandChains(
        min_limit=CHAIN_LIMIT,
        continued=len(links) / max(len(ended), 1),
        lateness=quantiles(lateness / 3600),
        wait=quantiles(table.wait[long] / 3600),
    )


def series_returns(table: JobTable, sessions: Sessions) -> Floats:
    """Hours since the previous batch of each batch's series; NaN for the first and for links of chains."""
    series = sessions.series[sessions.first]
    since = _since_previous(series, table.submit[sessions.first] / 3600)
    pairs = find_continuations(table)
    gap = table.start[pairs.successor] > table.end[pairs.predecessor]
    since[_is_first(series)] = np.nan
    since[sessions.batch[pairs.successor[gap]]] = np.nan
    return since


@dataclass(frozen=True, slots=True)
class _Unfinished:
    """What a user's long batches came up to; only batches of long jobs."""

    nodes: Int64
    """Nodes of the user's unfinished long jobs."""
    of_series: Int64
    """Unfinished jobs of the same series."""
    returns: NDArray[np.bool_]
    """Whether the series was known."""


def _unfinished(table: JobTable, sessions: Sessions) -> _Unfinished:
    """Sweep the long jobs in order of submission."""
    heads = np.zeros(len(table), dtype=bool)
    heads[sessions.first] = True
    columns = (table.user.codes, sessions.series, table.submit, table.end, table.nodes, heads)
    long = table.limit >= CHAIN_LIMIT
    of_user: dict[int, list[tuple[int, int, int]]] = {}
    known: set[int] = set()
    seen = []
    for user, series, submit, end, nodes, head in zip(*(c[long].tolist() for c in columns), strict=True):
        jobs = of_user.setdefault(user, [])
        while jobs and jobs[0][0] <= submit:
            heapq.heappop(jobs)
        if head:
            same = sum(s == series for _, _, s in jobs)
            seen.append((sum(n for _, n, _ in jobs), same, series in known))
        known.add(series)
        heapq.heappush(jobs, (end, nodes, series))
    rows = np.array(seen, dtype=np.int64).reshape(-1, 3)
    return _Unfinished(rows[:, 0], rows[:, 1], rows[:, 2] > 0)


def _is_first(keys: Int64) -> NDArray[np.bool_]:
    """Whether each row is the first with its key."""
    first = np.zeros(len(keys), dtype=bool)
    first[np.unique(keys, return_index=True)[1]] = True
    return first


def _since_previous(keys: Int64, instant: Floats) -> Floats:
    """Time since the previous row with the same key; 0 for the first. ``instant`` is ascending."""
    order = np.argsort(keys, kind="stable")
    since = np.zeros(len(keys))
    since[order[1:]] = np.where(np.diff(keys[order]) == 0, np.diff(instant[order]), 0)
    return since


def _gaps(table: JobTable, sessions: Sessions) -> Floats:
    """Seconds between neighbouring submissions of all batches."""
    return _with_gap(table, sessions)[1]


def _with_gap(table: JobTable, sessions: Sessions) -> tuple[Int64, Floats]:
    """Batch and seconds since the batch's previous job, for each job but the batch's first."""
    order = np.argsort(sessions.batch, kind="stable")
    inside = np.diff(sessions.batch[order]) == 0
    return sessions.batch[order[1:]][inside], np.diff(table.submit[order])[inside].astype(np.float64)


def _gap_correlation(table: JobTable, sessions: Sessions) -> Correlation:
    """Scripts submit fast, people slowly: gaps within a batch are correlated."""
    batch, gap = _with_gap(table, sessions)
    score = _normal_scores(gap, np.zeros(len(gap), dtype=np.int64))
    return Correlation(0.0, _alike(batch, score))


def _runtime_correlation(table: JobTable, sessions: Sessions, job_class: Int64) -> Correlation:
    """How alike the runtimes (relative to the limit) are, class by class."""
    ran, score = _runtime_scores(table, job_class)
    return _correlation(score, sessions.series[ran], sessions.batch[ran])


def _size_effect(table: JobTable, sessions: Sessions, job_class: Int64) -> float:
    """Correlation of runtime and batch size: what is submitted by the dozen is short."""
    ran, score = _runtime_scores(table, job_class)
    size = standard_log_size(sessions.size[sessions.batch[ran]], job_class[ran])
    varied = size != 0
    return float(np.corrcoef(score[varied], size[varied])[0, 1]) if varied.sum() > 2 else 0.0


def _runtime_scores(table: JobTable, job_class: Int64) -> tuple[Int64, Floats]:
    """Rows of the jobs that ran, and their normal scores of runtime / limit within the class."""
    ran = np.flatnonzero(table.start != ABSENT)
    share = np.where(table.runtime >= table.limit - TIMEOUT_SLACK, 1.0, table.runtime / np.maximum(table.limit, 1))
    return ran, _normal_scores(share[ran], job_class[ran])


def _correlation(score: Floats, series: Int64, batch: Int64) -> Correlation:
    """Intra-class correlations of ``score``, standardised here."""
    deviation = float(score.std())
    if deviation == 0:
        return Correlation(0.0, 0.0)
    standard = (score - score.mean()) / deviation
    of_series = _alike(series, standard)
    return Correlation(of_series, max(of_series, _alike(batch, standard)))


def _alike(group: Int64, standard: Floats) -> float:
    """Mean product of two different members of a group, groups weighted by size, within 0..0.95."""
    number = np.unique(group, return_inverse=True)[1].ravel()
    count = np.bincount(number)
    pairs = (np.bincount(number, standard) ** 2 - np.bincount(number, standard**2))[count > 1]
    several = count[count > 1]
    if not len(several):
        return 0.0
    return float(np.clip((pairs / (several - 1)).sum() / several.sum(), 0.0, 0.95))


def _normal_scores(values: Floats, stratum: Int64) -> Floats:
    """Normal scores of the ranks within each stratum; equal values share their mean score."""
    uniform = uniform_ranks(values, stratum)
    tie = numbered(stratum, np.unique(values, return_inverse=True)[1].ravel())
    mean = np.bincount(tie, uniform) / np.bincount(tie)
    normal = NormalDist()
    by_tie = np.array([normal.inv_cdf(float(u)) for u in mean])
    return np.asarray(by_tie[tie])


def _mean(mask: NDArray[np.bool_]) -> float:
    return float(mask.mean()) if len(mask) else 0.0

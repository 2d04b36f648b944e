"""Fits how users come back: series, sessions, hand-made chains, and how alike their jobs are."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from mirage.domain.job import ABSENT
from mirage.trace.generator.classes import quantiles
from mirage.trace.generator.jobs import TIMEOUT_SLACK, standard_log_size, uniform_ranks
from mirage.trace.generator.model import Correlation, Habits, HandChains
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
    from mirage.trace.generator.model import Floats
    from mirage.trace.generator.sessions import Sessions

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

"""Fits a workload model to a job table, and measures how close a generated workload is to a real one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np

from mirage.domain.errors import TraceError
from mirage.domain.job import ABSENT, JobState
from mirage.trace.generator.arrivals import hour_of_week
from mirage.trace.generator.habits import class_of_jobs, fit_chains, fit_class, fit_habits, series_returns
from mirage.trace.generator.jobs import TIMEOUT_SLACK
from mirage.trace.generator.model import HOURS_A_WEEK, ArrivalModel, ExitCode, Gres, WorkloadModel, mean_batch_work
from mirage.trace.generator.sessions import CHAIN_LIMIT, find_continuations, find_sessions

if TYPE_CHECKING:
    from mirage.domain.jobtable import Int32, Int64, JobTable
    from mirage.trace.generator.model import Floats
    from mirage.trace.generator.sessions import Sessions


def fit_arrivals(table: JobTable, sessions: Sessions) -> ArrivalModel:
    """The calendar of the batches of ``table``."""
    submit = table.submit + table.origin
    first = submit[sessions.first]
    start = int(submit.min()) // 86_400 * 86_400
    days = int((submit.max() - start) // 86_400) + 1
    day = (first - start) // 86_400
    weeks = np.bincount(day // 7, minlength=-(-days // 7)).astype(np.float64)
    weeks[-1] *= 7 / ((days - 1) % 7 + 1)
    mean = len(first) / days
    week_factor = weeks / 7 / mean
    hourly = _weekly_profile(np.bincount(hour_of_week(first), minlength=HOURS_A_WEEK).astype(np.float64))
    weekday = hourly.reshape(7, 24).mean(axis=1)
    expected = mean * week_factor[np.arange(days) // 7]
    expected *= weekday[hour_of_week(start + np.arange(days) * 86_400) // 24]
    return ArrivalModel(
        start=start,
        days=days,
        batches_per_day=mean,
        hour_of_week=tuple(hourly.tolist()),
        weeks=tuple(week_factor.tolist()),
        day_dispersion=_dispersion(np.bincount(day, minlength=days), expected),
    )


def _weekly_profile(counts: Floats) -> Floats:
    """Rate by hour of the week, mean 1: each day's level times the hours of weekdays or of weekend days.

    168 separate counts would mostly show chance; five weekdays share one daily shape.
    """
    days = counts.reshape(7, 24)
    shapes = np.repeat([days[:5].sum(axis=0), days[5:].sum(axis=0)], (5, 2), axis=0)
    shapes /= np.maximum(shapes.mean(axis=1, keepdims=True), 1)
    profile = (days.mean(axis=1, keepdims=True) * shapes).ravel()
    return np.asarray(profile / profile.mean())


def _dispersion(counts: Int64, expected: Floats) -> float:
    """Squared coefficient of variation of the days beyond Poisson's, by moments; busy days only."""
    busy = expected >= 0.25 * expected.mean()
    ratio = counts[busy] / expected[busy]
    # the weeks' level was fitted to the same days: one of seven degrees of freedom is gone
    return max(0.0, float((np.mean((ratio - 1) ** 2) - np.mean(1 / expected[busy])) * 7 / 6))


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


LIMITS_SHOWN = (0.5, 2, 4, 12, 24)
RUNTIMES_SHOWN = (10, 25, 50, 75, 90)
FULL_MONTH = 20
"""Months with submissions on fewer days are left out."""


@dataclass(frozen=True, slots=True)
class Closeness:
    """One statistic of both tables."""

    statistic: str
    real: float
    generated: float


def compare(model_table: JobTable, real_table: JobTable) -> tuple[Closeness, ...]:
    """The statistics of a generated table next to the real ones; NaN where one of them has none.

    Chains are read off starts and ends: for these rows give a generated table that a simulator has played,
    since before that every job starts as it is submitted.
    """
    longest = _longest_limit(real_table)
    real, generated = (dict(statistics(t, longest)) for t in (real_table, model_table))
    return tuple(Closeness(name, real[name], generated.get(name, float("nan"))) for name in real)


def statistics(table: JobTable, longest: int | None = None) -> tuple[tuple[str, float], ...]:
    """Return names and values; ``longest``: time limit (s) whose share is reported, default: the table's."""
    limit = _longest_limit(table) if longest is None else longest
    return (*_volume(table), *_requests(table, limit), *_runs(table), *_rhythm(table), *_chains(table))


def node_hours(table: JobTable) -> Floats:
    """Node-hours each job ran."""
    return np.asarray(table.nodes * table.runtime / 3600.0)


def _longest_limit(table: JobTable) -> int:
    """The longest limit that at least one job in a hundred asks for."""
    limits, counts = np.unique(table.limit, return_counts=True)
    common = limits[counts >= 0.01 * len(table)]
    return int(common[-1] if len(common) else limits[-1])


def _volume(table: JobTable) -> list[tuple[str, float]]:
    day = (table.submit + table.origin) // 86_400
    sizes = find_sessions(table).size
    by_user = np.sort(np.bincount(table.user.codes))[::-1]
    hours_by_user = np.sort(np.bincount(table.user.codes, node_hours(table)))[::-1]
    return [
        ("jobs", float(len(table))),
        ("jobs a day (median)", float(np.median(np.bincount(day - day[0])))),
        ("users", float((by_user > 0).sum())),
        ("share of jobs of the ten busiest users", by_user[:10].sum() / len(table)),
        ("share of node-hours of the ten largest users", hours_by_user[:10].sum() / hours_by_user.sum()),
        ("mean jobs in a batch", float(sizes.mean())),
        ("share of batches of one job", float((sizes == 1).mean())),
    ]


def _requests(table: JobTable, longest: int) -> list[tuple[str, float]]:
    hours = node_hours(table)
    asks = table.limit == longest
    label = f"{longest / 3600:g} h"
    bands = ((1, 1), (2, 2), (3, 4), (5, 1 << 30))
    return [
        (f"share of jobs that ask for {label}", float(asks.mean())),
        ("their share of node-hours", float(hours[asks].sum() / hours.sum())),
        *((f"share of limits up to {h:g} h", float((table.limit <= h * 3600).mean())) for h in LIMITS_SHOWN),
        *(
            (
                f"share of jobs of {_span(low, high)}",
                float(((table.nodes >= low) & (table.nodes <= high)).mean()),
            )
            for low, high in bands
        ),
        *(
            (f"share of node-hours of jobs of {_span(low, high)}", float(hours[inside].sum() / hours.sum()))
            for low, high in bands
            for inside in [(table.nodes >= low) & (table.nodes <= high)]
        ),
    ]


def _span(low: int, high: int) -> str:
    if high > 1 << 20:
        return f"{low} nodes and more"
    return f"{low} node" + ("s" if low > 1 else "") if low == high else f"{low} to {high} nodes"


def _runs(table: JobTable) -> list[tuple[str, float]]:
    ran = table.take(table.start != ABSENT)
    share = ran.runtime / ran.limit
    timeout = ran.runtime >= ran.limit - TIMEOUT_SLACK
    long = timeout & (ran.limit >= CHAIN_LIMIT)
    hours = node_hours(ran)
    return [
        *((f"runtime / limit, {p} %", float(np.percentile(share, p))) for p in RUNTIMES_SHOWN),
        ("share of jobs that ran to their limit", timeout.sum() / len(table)),
        ("share of jobs that ran to a limit of 12 h or more", long.sum() / len(table)),
        ("share of the node-hours of jobs that ran to such a limit", float(hours[long].sum() / hours.sum())),
        ("share of jobs failed", float((table.state == JobState.FAILED).mean())),
        ("share of jobs cancelled while pending", 1 - len(ran) / len(table)),
    ]


def _rhythm(table: JobTable) -> list[tuple[str, float]]:
    submit = table.submit + table.origin
    hour = hour_of_week(submit)
    by_hour = np.bincount(hour % 24, minlength=24) / (len(table) / 24)
    weekend = (hour >= 120).mean()
    day = submit // 86_400
    daily = np.bincount(day - day[0])[30:]
    return [
        ("busiest hour of the day / mean", float(by_hour.max())),
        ("quietest hour of the day / mean", float(by_hour.min())),
        ("weekday / weekend day", float((1 - weekend) / 5 / (weekend / 2))),
        ("jobs a day after the first 30: variance / mean", float(daily.var() / daily.mean())),
        *_monthly(table, submit),
    ]


def _monthly(table: JobTable, submit: Int64) -> list[tuple[str, float]]:
    """Node-hours submitted in each calendar month (UTC) per hour of it: nodes kept busy on average."""
    month = submit.astype("datetime64[s]").astype("datetime64[M]")
    rows = []
    for m in np.unique(month):
        inside = month == m
        if len(np.unique(submit[inside] // 86_400)) >= FULL_MONTH:
            begin, end = (int((m + k).astype("datetime64[s]").astype(np.int64)) for k in (0, 1))
            name = datetime.fromtimestamp(begin, UTC).strftime("%B %Y")
            load = node_hours(table)[inside].sum() / ((end - begin) / 3600)
            rows.append((f"nodes of work offered in {name}", float(load)))
    return rows


def _chains(table: JobTable) -> list[tuple[str, float]]:
    pairs = find_continuations(table)
    before, after = pairs.predecessor, pairs.successor
    gap = table.start[after] - table.end[before]
    late = table.submit[after] - table.end[before]
    broken = gap > 0
    gaps, lateness = gap[broken] / 3600, late[broken] / 3600
    if not broken.any():
        return [("chains manually: pairs", float(len(before)))]
    return [
        ("chains manually: pairs", float(len(before))),
        ("chains manually: users", float(len(np.unique(table.user.codes[before])))),
        ("chains manually: share of pairs that overlap", float(1 - broken.mean())),
        ("chains manually: mean gap of the others, h", float(gaps.mean())),
        ("chains manually: median gap, h", float(np.median(gaps))),
        ("chains manually: share submitted before the end", float((lateness <= 0).mean())),
        ("chains manually: share within 10 min after", float(((lateness > 0) & (lateness <= 1 / 6)).mean())),
        ("chains manually: share more than 1 h after", float((lateness > 1).mean())),
    ]

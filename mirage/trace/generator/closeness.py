"""How close a generated workload is to a real one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np

from mirage.domain.job import ABSENT, JobState
from mirage.trace.generator.arrivals import hour_of_week
from mirage.trace.generator.jobs import TIMEOUT_SLACK
from mirage.trace.generator.sessions import CHAIN_LIMIT, find_continuations, find_sessions

if TYPE_CHECKING:
    from mirage.domain.jobtable import Int64, JobTable
    from mirage.trace.generator.model import Floats

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

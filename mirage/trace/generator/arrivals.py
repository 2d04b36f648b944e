"""When batches arrive and to which class each belongs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from mirage.domain.jobtable import Int64
    from mirage.trace.generator.model import ArrivalModel, Floats, WorkloadModel

GOLDEN = 0.6180339887498949
"""Multiples of the golden ratio, taken modulo 1, fill the unit interval evenly at any length."""
SILVER = 0.4142135623730951
"""So do those of the square root of 2."""
EPOCH_HOUR_OF_WEEK = 72
"""The epoch was a Thursday, 00:00 UTC; weeks here start on Monday."""


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """Batches in order of arrival."""

    time: Floats
    """Seconds since the epoch."""
    job_class: Int64
    size: Int64
    """Jobs."""
    rate: float
    """Arrivals relative to the model's."""


def hour_of_week(epoch: Int64) -> Int64:
    """0..167 from Monday 00:00 UTC."""
    return (epoch // 3600 + EPOCH_HOUR_OF_WEEK) % 168


def folded_day(day: int, days: int) -> int:
    """Day of the model's span that stands for day ``day``: past its end the second half repeats.

    The first half often holds the filling of a new machine, which must not come back.
    """
    half = days // 2
    return day if day < days else half + (day - half) % (days - half)


def fitted_days(arrivals: ArrivalModel, days: int) -> Int64:
    """``folded_day`` of each of the first ``days`` days."""
    return np.array([folded_day(d, arrivals.days) for d in range(days)], dtype=np.int64)


def expected_batches(arrivals: ArrivalModel, days: int) -> Floats:
    """Expected batches in each hour of the first ``days`` days, without the random factor of the day."""
    hours = np.arange(days * 24, dtype=np.int64)
    weekly = np.array(arrivals.hour_of_week)[hour_of_week(arrivals.start + hours * 3600)]
    week = np.repeat(np.array(arrivals.weeks)[fitted_days(arrivals, days) // 7], 24)
    return np.asarray(arrivals.batches_per_day / 24 * weekly * week, dtype=np.float64)


def plan_batches(model: WorkloadModel, days: int, rate: float, rng: np.random.Generator) -> BatchPlan:
    """Draw the batches of ``days`` days at ``rate`` times the model's rate."""
    expected = expected_batches(model.arrivals, days) * rate
    noise = _day_factors(model.arrivals.day_dispersion, days, rng)
    counts = rng.poisson(expected * np.repeat(noise, 24))
    hour = np.repeat(np.arange(len(counts)), counts)
    time = np.sort(model.arrivals.start + 3600 * (hour + rng.random(len(hour))))
    day = ((time - model.arrivals.start) // 86_400).astype(np.int64)
    job_class = _classes(model, fitted_days(model.arrivals, days)[day] // 7, rng)
    return BatchPlan(time, job_class, _sizes(model, job_class, rng), rate)


def even(count: int, rng: np.random.Generator, step: float = GOLDEN) -> Floats:
    """Return ``count`` values in [0, 1) that are evenly spread in every interval: steps of an irrational.

    Users submit less while the queue is long, so that real load varies far less from week to week than
    independent draws would; a table without feedback gets the same steadiness from even draws. Quantities
    of the same batches need different steps, otherwise they would be correlated.
    """
    return np.asarray((rng.random() + step * np.arange(1, count + 1)) % 1, dtype=np.float64)


def pick(weights: Floats, uniform: Floats) -> Int64:
    """Index drawn in proportion to ``weights`` for each uniform."""
    edges = np.cumsum(weights) / np.sum(weights)
    return np.minimum(np.searchsorted(edges, uniform, side="right"), len(weights) - 1).astype(np.int64)


def _day_factors(dispersion: float, days: int, rng: np.random.Generator) -> Floats:
    """A gamma factor of mean 1 for each day."""
    if dispersion <= 0:
        return np.ones(days)
    return rng.gamma(1 / dispersion, dispersion, days)


def _classes(model: WorkloadModel, week: Int64, rng: np.random.Generator) -> Int64:
    """A class for each batch, by the shares of its week."""
    shares = np.array([c.shares for c in model.classes])
    chosen = np.empty(len(week), dtype=np.int64)
    uniform = even(len(week), rng)
    for w in np.unique(week):
        rows = week == w
        chosen[rows] = pick(shares[:, w], uniform[rows])
    return chosen


def _sizes(model: WorkloadModel, job_class: Int64, rng: np.random.Generator) -> Int64:
    """Jobs of each batch, by its class."""
    sizes = np.ones(len(job_class), dtype=np.int64)
    for c, described in enumerate(model.classes):
        rows = np.flatnonzero(job_class == c)
        weights = np.array([b.weight for b in described.batch_sizes])
        jobs = np.array([b.jobs for b in described.batch_sizes], dtype=np.int64)
        sizes[rows] = jobs[pick(weights, even(len(rows), rng))]
    return sizes

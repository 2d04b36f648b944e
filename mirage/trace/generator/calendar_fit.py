"""Fits when batches arrive and how much work they bring."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mirage.trace.generator.arrivals import hour_of_week
from mirage.trace.generator.model import HOURS_A_WEEK, Arrivals

if TYPE_CHECKING:
    from mirage.domain.jobtable import Int64, JobTable
    from mirage.trace.generator.model import Floats
    from mirage.trace.generator.sessions import Sessions


def fit_arrivals(table: JobTable, sessions: Sessions) -> Arrivals:
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
    return Arrivals(
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

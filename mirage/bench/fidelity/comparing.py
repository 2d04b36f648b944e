"""Comparison of two schedules of the same jobs: start times, waits, their order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Mapping

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Agreement:
    """Two schedules of jobs that started in both; seconds."""

    jobs: int
    alone: int
    """Jobs that started in one of them only."""
    median_error: float
    """Of |start - start|."""
    p90_error: float
    rank_correlation: float
    """Spearman's, of waits."""
    mean_wait_ratio: float
    """Mean wait of the second schedule over that of the first."""
    mean_wait: float
    """Of the first."""
    within_minute: float
    """Share of jobs that start within 60 s of each other."""


def agreement(submits: Mapping[int, int], first: Mapping[int, int], second: Mapping[int, int]) -> Agreement:
    """Compare two schedules, each starts by job id. Raises ``ValueError`` where they share no job."""
    both = sorted(first.keys() & second.keys())
    if not both:
        raise ValueError("no job started in both")
    submit, a, b = (np.array([each[job] for job in both], dtype=np.float64) for each in (submits, first, second))
    error, waits, others = np.abs(b - a), a - submit, b - submit
    return Agreement(
        len(both),
        len(first.keys() ^ second.keys()),
        float(np.median(error)),
        float(np.quantile(error, 0.9)),
        rank_correlation(waits, others),
        float(others.mean() / waits.mean()) if waits.mean() > 0 else float("nan"),
        float(waits.mean()),
        float((error <= 60).mean()),
    )


def rank_correlation(a: Floats, b: Floats) -> float:
    """Spearman's rho, ties sharing their mean rank; ``nan`` where one of them is constant."""
    ranks = _ranks(a), _ranks(b)
    if any(np.ptp(each) == 0 for each in ranks):
        return float("nan")
    return float(np.corrcoef(*ranks)[0, 1])


def _ranks(values: Floats) -> Floats:
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    mean: Floats = (last - (counts - 1) / 2)[place]
    return mean

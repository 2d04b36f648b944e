"""When people cancel jobs that still wait: a rate by how long they have waited, higher for those who often do.

Piecewise constant hazards by waiting time, times a factor for each user: cancellations seen over those expected
of all users, drawn towards 1 by ``PRIOR`` (a gamma prior; Gelman et al., Bayesian Data Analysis, 2.7).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mirage.domain.job import ABSENT, NEVER

if TYPE_CHECKING:
    from mirage.predictors.lookahead.past import Past

Int64 = NDArray[np.int64]
Floats = NDArray[np.float64]

AGES = np.array([0.0, 3_600.0, 6 * 3_600.0, 24 * 3_600.0])
"""From which waiting times on (s) the rate may be another."""

PRIOR = 2.0
"""Expected cancellations of a user at which that user's data weigh as much as those of all users."""

_ENDLESS = 1e12


class Cancellations:
    """Draws when waiting jobs are cancelled."""

    def __init__(self, past: Past) -> None:
        table = past.table
        cancelled = (table.start == ABSENT) & (table.end != ABSENT)
        left = np.where(table.start != ABSENT, table.start, np.where(cancelled, table.end, past.now))
        waited = np.maximum(left - table.submit, 0).astype(np.float64)
        self._rates = _rates(waited, cancelled)
        users, place = np.unique(past.like.user, return_inverse=True)
        seen = np.bincount(place, cancelled, len(users))
        expected = np.bincount(place, self._hazard(waited), len(users))
        self._users, self._factors = users, (seen + PRIOR) / (expected + PRIOR)

    def draw(self, user: Int64, submit: Int64, now: int, uniforms: Floats) -> Int64:
        """When each waiting job is cancelled; ``NEVER`` where that is beyond all waits. Shape of ``uniforms``."""
        if not self._rates.any():
            return np.full(uniforms.shape, NEVER, dtype=np.int64)
        place = np.minimum(np.searchsorted(self._users, user), len(self._users) - 1)
        factor = np.where(self._users[place] == user, self._factors[place], 1.0)
        waited = np.maximum(now - submit, 0).astype(np.float64)
        due = self._hazard(waited) - np.log(uniforms) / factor
        age = self._age_at(due)
        return np.where(age < _ENDLESS, submit + np.minimum(age, _ENDLESS).astype(np.int64), NEVER)

    def _hazard(self, age: Floats) -> Floats:
        """Cancellations expected of a job that waits until ``age``."""
        spans = np.diff(AGES, append=_ENDLESS)
        within = np.clip(age[..., None] - AGES, 0.0, spans)
        found: Floats = within @ self._rates
        return found

    def _age_at(self, hazard: Floats) -> Floats:
        """The inverse of ``_hazard``; ``_ENDLESS`` where it is never reached."""
        ages = np.append(AGES, _ENDLESS)
        found: Floats = np.interp(hazard, self._hazard(ages), ages)
        return found


def _rates(waited: Floats, cancelled: NDArray[np.bool_]) -> Floats:
    """Return cancellations per second of waiting, by waiting time; without data as for shorter waits."""
    spans = np.diff(AGES, append=np.inf)
    exposure = np.clip(waited[:, None] - AGES, 0.0, spans).sum(axis=0)
    counts = np.bincount(np.searchsorted(AGES, waited[cancelled], side="right") - 1, minlength=len(AGES))
    rates = np.zeros(len(AGES))
    for k in range(len(AGES)):
        rates[k] = counts[k] / exposure[k] if exposure[k] > 0.0 else (rates[k - 1] if k else 0.0)
    return rates

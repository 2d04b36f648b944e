"""What may arrive: whole days of recent weeks, of the same hours of the week, played again.

Whole days keep what belongs together: who submits how much, in which bursts, and how their jobs run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mirage.domain.job import ABSENT, NEVER
from mirage.predictors.lookahead.chance import uniforms
from mirage.simulator.resume import Coming

if TYPE_CHECKING:
    from mirage.domain.job import Seconds
    from mirage.predictors.lookahead.past import Past

Int64 = NDArray[np.int64]
DAY, WEEK = 86_400, 7 * 86_400

WEEKS = 5
"""How many weeks back days are taken from."""

SPAN = (WEEKS + 1) * WEEK
"""Required period of past jobs, in seconds."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """Jobs of the past, and by how many seconds later they come again."""

    rows: Int64
    later: Int64

    def __len__(self) -> int:
        return len(self.rows)


def weeks_known(past: Past) -> int:
    """From how many weeks days may be drawn. Raises ``ValueError`` where less than one is known."""
    weeks = min(WEEKS, (past.now - int(past.table.submit[0])) // WEEK)
    if weeks < 1:
        raise ValueError("less than a week of the past is known: nothing to draw arrivals from")
    return weeks


class Arrivals:
    """Draws the arrivals of the next days."""

    def __init__(self, past: Past, coming: Coming, seed: int) -> None:
        """``coming``: the jobs of ``past`` as arrivals. Raises ``ValueError`` as ``weeks_known`` does."""
        self._now, self._seed = past.now, seed
        self._weeks = weeks_known(past)
        self._coming = coming
        self._submit = coming.jobs["submit"].copy()

    def draw(self, future: int, until: Seconds) -> Drawn:
        """Which arrivals one future has from now to ``until``."""
        chosen, shifts = [], []
        begin = self._now
        while begin < until:
            day = begin // DAY
            end = min((day + 1) * DAY, until)
            back = self._weeks_back(future, day, end) * WEEK
            low, high = np.searchsorted(self._submit, (begin - back + 1, end - back + 1))
            chosen.append(np.arange(low, high))
            shifts.append(np.full(high - low, back))
            begin = end
        return Drawn(np.concatenate(chosen), np.concatenate(shifts))

    def rows(self, drawn: Drawn) -> Coming:
        """The same as rows for the simulation, in order of submission."""
        coming, by = self._coming, drawn.later
        jobs = coming.jobs.view(np.int64).reshape(len(coming), -1)[drawn.rows].view(coming.jobs.dtype)[:, 0]
        jobs["submit"] += by
        jobs["begin"] += np.where(jobs["begin"] > 0, by, 0)
        jobs["cancel_at"] += np.where(jobs["cancel_at"] != NEVER, by, 0)
        return Coming(jobs, coming.needs[drawn.rows], np.full(len(by), ABSENT), coming.groups)

    def _weeks_back(self, future: int, day: int, end: Seconds) -> int:
        """From which week a day comes that lasts until ``end``; from none whose end is still to come."""
        least = max(1, -((self._now - end) // WEEK))
        drawn = uniforms(self._seed, np.array([future]), np.array([day]))[0, 0]
        return int(least + drawn * max(self._weeks - least + 1, 1))

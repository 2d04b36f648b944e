"""Past jobs, and the run times of jobs like them, the more alike and the more recent the more they count.

For each job a mixture of the run times of its series (at its limit), of its user, and of all jobs of about its
limit. A level with evidence W takes the share W / (W + prior) of what the levels before it left over: the
predictive distribution of a hierarchical Dirichlet process (Teh et al., JASA 101, 2006) with fixed tables. What
has run for some time is conditioned on that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mirage.domain.job import ABSENT, JobState
from mirage.domain.jobtable import hashed_names, hashed_users, series_of

if TYPE_CHECKING:
    from mirage.domain.decision import Observation
    from mirage.domain.job import Seconds
    from mirage.domain.jobtable import JobTable
    from mirage.domain.snapshot import JobColumns, Snapshot

Int64 = NDArray[np.int64]

MOST_PAST = 200_000
"""Past jobs that are looked at: of more, the last submitted."""


@dataclass(frozen=True, slots=True)
class Likeness:
    """By what jobs are compared, as columns of equal length."""

    series: Int64
    user: Int64
    """A number for each user, equal in the past and in the queue."""
    limit: Int64

    def __len__(self) -> int:
        return len(self.series)

    @classmethod
    def of_table(cls, table: JobTable) -> Likeness:
        """Jobs of the past."""
        users = hashed_users([*table.user.vocabulary, ""])[table.user.codes]
        names = hashed_names([*table.name.vocabulary, ""])[table.name.codes]
        return cls(series_of(users, names), users, table.limit)

    @classmethod
    def of_queue(cls, snapshot: Snapshot, jobs: JobColumns) -> Likeness:
        """Return the likeness of jobs in a snapshot."""
        return cls(jobs.series, hashed_users([*snapshot.users, ""])[jobs.user], jobs.limit)


@dataclass(frozen=True, slots=True)
class Past:
    """Jobs submitted recently, by submission."""

    now: Seconds
    table: JobTable
    like: Likeness

    @classmethod
    def of(cls, observation: Observation) -> Past:
        """The jobs of all others. Raises ``ValueError`` where the observation brings none."""
        table = observation.history
        if table is None or not len(table):
            raise ValueError("no jobs of the past are known: a look-ahead learns run times and arrivals from them")
        others = ~_same_service(table, observation)
        if len(table) > MOST_PAST or not others.all():
            table = table.take(np.flatnonzero(others)[-MOST_PAST:])
        return cls(observation.time, table, Likeness.of_table(table))

    @property
    def started(self) -> Int64:
        """Rows of the jobs that have started, in order of their starts."""
        rows = np.flatnonzero(self.table.start != ABSENT)
        ordered: Int64 = rows[np.argsort(self.table.start[rows], kind="stable")]
        return ordered

    @property
    def hit_limit(self) -> NDArray[np.bool_]:
        """Which jobs their limit ended."""
        ended: NDArray[np.bool_] = self.table.state == JobState.TIMEOUT
        return ended


def _same_service(table: JobTable, observation: Observation) -> NDArray[np.bool_]:
    """Links of the service itself: that it continues is known, and not part of the load that comes by itself."""
    request = observation.successor
    users, names = table.user.vocabulary, table.name.vocabulary
    if request.user not in users or request.name not in names:
        return np.zeros(len(table), dtype=np.bool_)
    of_user = np.asarray(table.user.codes == users.index(request.user))
    same: NDArray[np.bool_] = of_user & (table.name.codes == names.index(request.name))
    return same


Floats = NDArray[np.float64]
DAY = 86_400


@dataclass(frozen=True, slots=True)
class Level:
    """How runs at one level of likeness count."""

    prior: float
    """As many runs as this are worth as much as all the less alike ones together."""
    memory: float
    """Seconds after which a run counts 1/e."""
    fading: float
    """What a run counts for each newer one at the same level."""


SERIES = Level(prior=6.0, memory=14 * DAY, fading=0.9)
USER = Level(prior=6.0, memory=30 * DAY, fading=0.95)
CLASS = Level(prior=0.1, memory=14 * DAY, fading=1.0)
"""Chosen by the continuous ranked probability score of the remaining run times on LS6, December and January."""

SAME_CLASS = 2.0
"""Largest ratio of time limits within a class."""

_MOST_KEPT = 8_000_000
"""Run times in the mixtures that are kept for the next draw; beyond, the oldest are dropped and mixed again."""


@dataclass(frozen=True, slots=True)
class _Mixture:
    """A distribution of run times: ascending seconds, and the probability up to and with each."""

    seconds: Int64
    upto: Floats


class RunTimes:
    """Draws run times."""

    def __init__(self, past: Past) -> None:
        rows = past.started
        table, like = past.table, past.like
        self._age = past.now - table.start[rows]
        self._ended = table.end[rows] != ABSENT
        self._ran = np.where(self._ended, table.end[rows] - table.start[rows], self._age)
        self._hit = past.hit_limit[rows]
        self._series, self._user, limit = like.series[rows], like.user[rows], like.limit[rows]
        self._limit, self._log_limit = limit, np.log(np.maximum(limit, 1))
        self._kept: dict[tuple[int, int, int], _Mixture] = {}
        self._values = 0
        """Run times in all that are kept."""

    def draw(self, like: Likeness, elapsed: Int64, uniforms: Floats) -> Int64:
        """Seconds each job runs in all, more than ``elapsed`` and at most its limit; shape of ``uniforms``."""
        found = np.empty(uniforms.shape, dtype=np.int64)
        for job in range(len(like)):
            limit = int(like.limit[job])
            mixture = self._mixture(int(like.series[job]), int(like.user[job]), limit)
            found[:, job] = _conditioned(mixture, int(elapsed[job]), limit, uniforms[:, job])
        return found

    def _mixture(self, series: int, user: int, limit: int) -> _Mixture:
        key = (series, user, limit)
        if key not in self._kept:
            self._kept[key] = mixture = self._mixed(*key)
            self._values += len(mixture.seconds)
            while self._values > _MOST_KEPT and len(self._kept) > 1:
                self._values -= len(self._kept.pop(next(iter(self._kept))).seconds)
        return self._kept[key]

    def _mixed(self, series: int, user: int, limit: int) -> _Mixture:
        same_user = np.flatnonzero(self._user == user)
        same_series = same_user[(self._series[same_user] == series) & (self._limit[same_user] == limit)]
        levels = ((same_series, SERIES), (same_user, USER), (self._class(limit), CLASS))
        seconds, masses, left = [], [], 1.0
        for rows, level in levels:
            found, mass, evidence = self._survival(rows, level, limit)
            share = left * evidence / (evidence + level.prior)
            seconds.append(found)
            masses.append(share * mass)
            left -= share
        joined = np.append(np.concatenate(seconds), limit)
        weights = np.append(np.concatenate(masses), left)
        order = np.argsort(joined, kind="stable")
        return _Mixture(joined[order], np.cumsum(weights[order]))

    def _survival(self, rows: Int64, level: Level, limit: int) -> tuple[Int64, Floats, float]:
        """Run times of ``rows`` (by start), the mass of each, and what they are worth as evidence.

        What still runs counts as longer than that (Kaplan & Meier, JASA 53, 1958): leaving it out would make the
        newest jobs look short, for of these only the short ones have ended.
        """
        newer = np.arange(len(rows) - 1, -1, -1)
        weight = np.exp(-self._age[rows] / level.memory) * level.fading**newer
        ran = np.minimum(np.where(self._hit[rows], limit, self._ran[rows]), limit)
        ended = self._ended[rows] | (ran >= limit)
        order = np.lexsort((~ended, ran))
        ran, ended, weight = ran[order], ended[order], weight[order]
        at_risk = np.cumsum(weight[::-1])[::-1]
        hazard = np.where(ended, weight / np.maximum(at_risk, 1e-300), 0.0)
        surviving = np.cumprod(1.0 - hazard)
        mass = np.append(1.0, surviving[:-1]) * hazard if len(rows) else hazard
        rest = 1.0 - float(mass.sum())
        evidence = float(weight[ended].sum())
        return np.append(ran, limit), np.append(mass, rest), evidence

    def _class(self, limit: int) -> Int64:
        """Return jobs with about this time limit; all jobs if there are none."""
        near = np.abs(self._log_limit - np.log(max(limit, 1))) <= np.log(SAME_CLASS)
        return np.flatnonzero(near) if near.any() else np.arange(len(self._ran))


def _conditioned(mixture: _Mixture, elapsed: int, limit: int, uniforms: Floats) -> Int64:
    """Draw from the part of the distribution beyond ``elapsed``; the limit if no job ever ran longer."""
    first = int(np.searchsorted(mixture.seconds, elapsed, side="right"))
    before = float(mixture.upto[first - 1]) if first else 0.0
    beyond = float(mixture.upto[-1]) - before
    if first == len(mixture.seconds) or beyond <= 1e-9:
        return np.full(len(uniforms), limit, dtype=np.int64)
    place = np.searchsorted(mixture.upto, before + uniforms * beyond, side="left")
    return mixture.seconds[np.clip(place, first, len(mixture.seconds) - 1)]

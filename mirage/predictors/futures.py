"""Futures of one observation: run times, cancellations and arrivals drawn, and played on the simulator.

Random numbers are bound to jobs, not to the order of calls. Future ``r`` gives job ``j`` the same number in every
evaluation. So two evaluations ten minutes apart differ by what happened in between, not by chance.

Arrivals are whole days of recent weeks, of the same hours of the week. Whole days keep what belongs together: who
submits how much, in which bursts, and how their jobs run.

Cancellations of pending jobs have piecewise constant hazards by waiting time, times a factor for each user:
cancellations seen over those expected of all users, drawn towards 1 by ``PRIOR`` (a gamma prior; Gelman et al.,
Bayesian Data Analysis, 2.7).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mirage.domain.job import ABSENT, NEVER
from mirage.predictors.past_jobs import Likeness, Past, RunTimes
from mirage.simulator.resume import Coming, Futures

if TYPE_CHECKING:
    from mirage.domain.decision import Observation
    from mirage.domain.job import Seconds
    from mirage.domain.snapshot import JobColumns, Snapshot
    from mirage.simulator.resume import Resumption

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


Uniforms = NDArray[np.float64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def _mixed(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of splitmix64 (Steele, Lea & Flood, OOPSLA 2014)."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def uniforms(seed: int, futures: NDArray[np.int64], things: NDArray[np.int64]) -> Uniforms:
    """Independent numbers within (0, 1), shape (futures, things); equal things have equal numbers."""
    rows = _mixed(futures.astype(np.uint64) * _GOLDEN + np.uint64(seed & 0xFFFF_FFFF_FFFF_FFFF))
    words = _mixed(_mixed(things.astype(np.uint64) + _GOLDEN)[None, :] ^ rows[:, None])
    found: Uniforms = ((words >> np.uint64(11)).astype(np.float64) + 0.5) / 2.0**53
    return found


def following(own: Uniforms, shared: Uniforms, whether: Uniforms, share: float) -> Uniforms:
    """``own``, but ``shared`` where ``whether`` is below ``share``: things of one group that often go alike."""
    return np.where(whether < share, shared, own)


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


class PastArrivals:
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


ALIKE = 0.9
"""How often the jobs of one series go the same way in a future (run long, run short)."""

PATIENT = 0.75
"""Power of a waiting job's chance: it is drawn from the longer runs of those like it. Users wait for production
jobs, and trials start immediately; without it forecasts of LS6 in January were 0.8 h early in the median."""

MOST_PENDING = 5_000
"""Pending jobs that futures are played with. Of more, those of the highest priority: Slurm itself plans with fewer
in one pass, and what a future costs in time and memory must not depend on how many jobs a user submits."""

_AT_ONCE = 500_000
"""Values of one draw: futures times jobs."""

_OWN, _SHARED, _WHETHER, _DAYS, _CANCEL = range(5)
"""Kinds of random numbers, each with a separate sequence."""


class Outlook:
    """What may come of one observation. Future ``r`` is the same whatever futures are played next to it."""

    def __init__(self, observation: Observation, resumption: Resumption, seed: int, until: Seconds) -> None:
        """No future is played beyond ``until``. Raises ``ValueError`` where too little of the past is known."""
        past = Past.of(observation)
        weeks_known(past)  # before anything that costs
        snapshot = _foremost(observation.snapshot)
        self._seed, self._until, self._now = seed, until, snapshot.time
        coming = resumption.coming(past.table)
        self._resumed = resumption.resume(snapshot, observation.successor, observation.standing.fair_share)
        self._arrivals = PastArrivals(past, self._resumed.shared(coming), seed + _DAYS)
        self._run_times, self._cancellations = RunTimes(past), Cancellations(past)
        rows, running = self._resumed.rows, len(snapshot.running)
        self._jobs = _joined(snapshot.running, snapshot.pending).take(rows)
        self._like = Likeness.of_queue(snapshot, self._jobs)
        self._waits = rows >= running
        self._elapsed = np.where(self._waits, 0, self._now - self._jobs.start)
        predecessor = observation.predecessor
        number = predecessor.job_id if predecessor is not None else ABSENT
        self._ours = np.flatnonzero(self._jobs.job_id == number)

    def starts(self, futures: Int64, times: Int64) -> Int64:
        """Starts if submitted at ``times`` (ascending, from now on), shape (futures, times); ``until`` at most."""
        drawn = [self._arrivals.draw(int(future), self._until) for future in futures]
        stage = Futures(self._resumed, max(map(len, drawn)))
        found = np.empty((len(futures), len(times)), dtype=np.int64)
        some = max(1, _AT_ONCE // max(len(self._jobs), 1))
        for first in range(0, len(futures), some):
            rows = range(first, min(first + some, len(futures)))
            runtimes, cancels = self._drawn_run_times(futures[rows]), self._drawn_cancels(futures[rows])
            for row, runs, ends in zip(rows, runtimes, cancels, strict=True):
                coming = self._arrivals.rows(drawn[row])
                found[row] = stage.starts(runs, ends, coming, times, self._until)
        return np.minimum(found, self._until)

    def _drawn_run_times(self, futures: Int64) -> Int64:
        jobs, series = self._jobs.job_id, self._jobs.series
        chance = following(
            uniforms(self._seed + _OWN, futures, jobs),
            uniforms(self._seed + _SHARED, futures, series),
            uniforms(self._seed + _WHETHER, futures, jobs),
            ALIKE,
        )
        chance = np.where(self._waits, chance**PATIENT, chance)
        drawn = self._run_times.draw(self._like, self._elapsed, chance)
        drawn[:, self._ours] = self._jobs.limit[self._ours]
        return drawn

    def _drawn_cancels(self, futures: Int64) -> Int64:
        """Running jobs have one as well, which nothing looks at."""
        chance = uniforms(self._seed + _CANCEL, futures, self._jobs.job_id)
        return self._cancellations.draw(self._like.user, self._jobs.submit, self._now, chance)


def _foremost(snapshot: Snapshot) -> Snapshot:
    """The same, with at most ``MOST_PENDING`` pending jobs, in their order."""
    pending = snapshot.pending
    if len(pending) <= MOST_PENDING:
        return snapshot
    first = np.argsort(-pending.priority, kind="stable")[:MOST_PENDING]
    return replace(snapshot, pending=pending.take(np.sort(first)))


def _joined(first: JobColumns, second: JobColumns) -> JobColumns:
    pairs = ((getattr(first, name), getattr(second, name)) for name in type(first).__dataclass_fields__)
    return type(first)(*(np.concatenate(pair) for pair in pairs))

"""Futures of one observation: run times, cancellations and arrivals drawn, and played on the simulator."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mirage.domain.job import ABSENT
from mirage.predictors.lookahead.arrivals import Arrivals, weeks_known
from mirage.predictors.lookahead.cancellations import Cancellations
from mirage.predictors.lookahead.chance import following, uniforms
from mirage.predictors.lookahead.past import Likeness, Past
from mirage.predictors.lookahead.runtimes import RunTimes
from mirage.simulator.resume import Futures

if TYPE_CHECKING:
    from mirage.domain.decision import Observation
    from mirage.domain.job import Seconds
    from mirage.domain.snapshot import JobColumns, Snapshot
    from mirage.simulator.resume import Resumption

Int64 = NDArray[np.int64]
Floats = NDArray[np.float64]

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
        self._arrivals = Arrivals(past, self._resumed.shared(coming), seed + _DAYS)
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

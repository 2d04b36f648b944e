"""Look-ahead: plays the coming days many times on the simulator, and weighs submitting now against later.

All submit times are tried in the same futures, so that their costs differ by the submit time alone. What holding
until a later time is worth lies between two figures that the futures give: submitting then whatever has happened
(open loop: what is learned meanwhile counts for nothing), and the best time from then on of each future (as if all
were known). The longer held, the more is learned: ``LEARNING`` says how fast.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mirage.domain.decision import ActionScores, WaitForecast, Wants
from mirage.domain.job import ABSENT
from mirage.domain.objective import Weights
from mirage.predictors.futures import SPAN, Outlook
from mirage.simulator.resume import Resumption

if TYPE_CHECKING:
    from mirage.domain.decision import Observation, Prediction
    from mirage.domain.job import Job, JobId, Seconds
    from mirage.simulator.cluster import ClusterConfig

Int64 = NDArray[np.int64]
Floats = NDArray[np.float64]

HOUR = 3_600
LEVELS = (0.1, 0.25, 0.5, 0.75, 0.9)

BEYOND = 36 * HOUR
"""How long after the predecessor's end futures are played: later starts all count as this late."""

FIRST = 5 * 24 * HOUR
"""How far futures are played for a link without a predecessor."""

LONG_QUEUE = 20
"""Pending jobs from which planning dominates the cost of a future; futures are then planned roughly."""

ROUGH_INTERVAL, ROUGH_DEPTH = 600, 20
"""Backfill of futures with a long queue: seconds between passes, jobs planned in each. On LS6 in January the
forecasts were as good as with a pass over all jobs every 30 s (CRPS 1.58 h both)."""

TOO_EARLY = 0.75
"""It is too early when this part of the futures starts well before the predecessor ends."""

LATER = (HOUR // 6, HOUR // 2, 2 * HOUR, 5 * HOUR, 12 * HOUR)
"""Submit times tried besides now and the predecessor's end, from now on. The first is about the next evaluation:
often all times within some hours lead to the same start, and only this step shows that waiting is free."""

LEARNING = 4 * HOUR
"""Time constant in which all but 1/e of the gain of perfect knowledge is reached; 1 to 4 hours gave equal results
on LS6 in December and January."""

PAUSE = 0.05
"""Part of the time left after which the next evaluation is due."""

LONGEST_PAUSE = HOUR // 2
"""Longest pause between evaluations: a burst of jobs of other users can use up 20 h of margin within one hour."""

AT_ONCE = 6
"""Predecessors evaluated per cycle; more only if an evaluation cannot wait. Each takes 0.1 s, and after a start of
the daemon all chains are due."""

LONGEST_WAIT = 4 * HOUR
"""A predecessor that ends within this time is always looked at."""

REMEMBERED = 256
"""Predecessors whose last evaluation is cached."""


@dataclass(frozen=True, slots=True)
class Budget:
    """How many futures are played."""

    screen: int = 16
    """First, for submitting now only: when most of them start far before the predecessor ends, it is too early."""
    batch: int = 40
    """Futures added per step for all submit times, until the better action is clear."""
    most: int = 80
    """Largest number of futures. If the better action is unclear the choice hardly matters: 8 to 32 gave equal
    results on LS6 in January."""
    clear: float = 2.5
    """Standard errors by which the worth of the two actions must differ to be clear."""
    first: int = 200
    """For a link without a predecessor, which is only forecast."""


@dataclass(frozen=True, slots=True)
class _Look:
    """An evaluation that found it too early to submit, and until when it is valid."""

    made: Seconds
    until: Seconds
    forecast: WaitForecast


class Lookahead:
    """The predictor. Its answers depend on the observations and the seed alone.

    If it is much too early, the next evaluation is delayed: see ``PAUSE``.
    """

    name = "lookahead"

    def __init__(
        self,
        cluster: ClusterConfig,
        seed: int = 0,
        weights: Weights | None = None,
        budget: Budget | None = None,
    ) -> None:
        """``cluster``: as its configuration says, right or wrong; how many nodes are down is seen in the queue."""
        self._resumption, self._rough = Resumption(cluster), Resumption(_planned_roughly(cluster))
        self._seed = seed
        self._weights = weights or Weights()
        self._budget = budget or Budget()
        self._looks: dict[JobId, _Look] = {}
        self._instant: Seconds = ABSENT
        """For which ``_looked`` counts."""
        self._looked = 0
        self._begun: Seconds = ABSENT

    @property
    def wants(self) -> Wants:
        """The queue, the jobs of the weeks that futures are drawn from, and fair share where it counts."""
        return Wants(queue=True, history=SPAN, standing=self._resumption.shares)

    def predict(self, observation: Observation) -> Prediction:
        """Expected objectives of submitting now and of the best later time, with the forecast.

        The forecast alone where it is clearly too early to submit. Raises ``ValueError`` where too little of the
        past is known, ``SubmissionRejected`` where the cluster as configured would reject the successor.
        """
        now, predecessor = observation.time, observation.predecessor
        if predecessor is None or predecessor.end == ABSENT or predecessor.end <= now:
            every = np.arange(self._budget.first)
            starts = self.outlook(observation, now + FIRST).starts(every, np.array([now]))[:, 0]
            return _forecast(starts, now, now + FIRST)
        look = self._looks.get(predecessor.job_id)
        if look is not None and look.made <= now < look.until:
            return _later(look.forecast, now - look.made)
        if self._others_come_first(now) and (answer := self._without_look(look, now, predecessor)) is not None:
            return answer
        outlook = self.outlook(observation, predecessor.end + BEYOND)
        screened = outlook.starts(np.arange(self._budget.screen), np.array([now]))[:, 0]
        early = predecessor.end - float(np.quantile(screened, TOO_EARLY))
        if early > max(HOUR, 0.1 * (predecessor.end - now)):
            return self._pause(predecessor.job_id, now, early, _forecast(screened, now, predecessor.end + BEYOND))
        return self._weigh(outlook, now, predecessor.end)

    def outlook(self, observation: Observation, until: Seconds) -> Outlook:
        """The futures themselves, up to a time. Raises as ``predict`` does."""
        long = len(observation.snapshot.pending) >= LONG_QUEUE
        return Outlook(observation, self._rough if long else self._resumption, self._seed, until)

    def _others_come_first(self, now: Seconds) -> bool:
        if self._begun == ABSENT:
            self._begun = now
        if now != self._instant:
            self._instant, self._looked = now, 0
        self._looked += 1
        return self._looked > AT_ONCE

    def _without_look(self, look: _Look | None, now: Seconds, predecessor: Job) -> Prediction | None:
        """Return the prediction until there is time for an evaluation; ``None``: it cannot wait.

        An evaluation is valid for the same time again. A link that has just started needs none yet. After a start
        of the daemon, only links that end soon need one.
        """
        if look is not None:
            good = look.made <= now < 2 * look.until - look.made
            return _later(look.forecast, now - look.made) if good else None
        began = max(predecessor.start, self._begun)
        if predecessor.end - now < LONGEST_WAIT or not began <= now < began + LONGEST_PAUSE:
            return None
        return ActionScores(-1.0, 0.0, basis="other chains are looked at first")

    def _pause(self, number: JobId, now: Seconds, early: float, forecast: WaitForecast) -> WaitForecast:
        pause = int(min(PAUSE * early, LONGEST_PAUSE))
        self._looks.pop(number, None)
        self._looks[number] = _Look(now, now + pause, forecast)
        if len(self._looks) > REMEMBERED:
            del self._looks[next(iter(self._looks))]
        return forecast

    def _weigh(self, outlook: Outlook, now: Seconds, end: Seconds) -> ActionScores:
        times, budget = _submit_times(now, end), self._budget
        starts = np.empty((0, len(times)), dtype=np.int64)
        while len(starts) < budget.most:
            futures = np.arange(len(starts), min(len(starts) + budget.batch, budget.most))
            starts = np.concatenate([starts, outlook.starts(futures, times)])
            # Later submission starts no earlier but by luck, and luck is nothing to wait for.
            costs = _costs(np.maximum.accumulate(starts, axis=1) - end, self._weights)
            held = _held(costs[:, 1:], times[1:] - now)
            if _clear(costs[:, 0] - held, budget.clear):
                break
        forecast = _forecast(starts[:, 0], now, end + BEYOND)
        return ActionScores(-float(costs[:, 0].mean()), -float(held.mean()), forecast)


def _held(costs: Floats, after: Int64) -> Floats:
    """Return the cost of waiting per future, shape (futures,), from costs of submitting ``after`` s from now."""
    foreseen = np.minimum.accumulate(costs[:, ::-1], axis=1)[:, ::-1]
    learnt = 1.0 - np.exp(-after / LEARNING)
    expected = (1.0 - learnt) * costs + learnt * foreseen
    held: Floats = expected[:, int(np.argmin(expected.mean(axis=0)))]
    return held


def _submit_times(now: Seconds, end: Seconds) -> Int64:
    later = [now + after for after in LATER if now + after < end]
    return np.array([now, *later, end], dtype=np.int64)


def _costs(x: Int64, weights: Weights) -> Floats:
    """What the objective charges for signed gaps (s)."""
    costs: Floats = weights.interruption * np.maximum(x, 0.0) + weights.overlap * np.maximum(-x, 0.0)
    return costs


def _clear(difference: Floats, errors: float) -> bool:
    spread = float(difference.std(ddof=1)) / np.sqrt(len(difference))
    return bool(abs(difference.mean()) >= errors * spread)


def _forecast(starts: Int64, now: Seconds, until: Seconds) -> WaitForecast:
    """Quantiles of the starts; ``until``: those of futures that were played no further."""
    late, hours = int((starts >= until).sum()), (until - now) / HOUR
    basis = f"{len(starts)} futures"
    if late:
        basis += f", in {late} of which it does not start within {hours:.0f} h: these count as {hours:.0f} h"
    return WaitForecast(LEVELS, tuple(np.quantile(starts, LEVELS).tolist()), basis)


def _later(forecast: WaitForecast, passed: Seconds) -> WaitForecast:
    """Shift a forecast to a submission ``passed`` seconds later, with the same waits."""
    return replace(forecast, starts=tuple(start + passed for start in forecast.starts))


def _planned_roughly(cluster: ClusterConfig) -> ClusterConfig:
    own = cluster.scheduler
    depth, interval = min(own.bf_max_job_test, ROUGH_DEPTH), max(own.bf_interval, ROUGH_INTERVAL)
    return replace(cluster, scheduler=replace(own, bf_max_job_test=depth, bf_interval=interval))

"""The clairvoyant baseline: knows what every submission time would lead to, and takes the best."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from mirage.domain.decision import ActionScores, Wants
from mirage.domain.objective import objective
from mirage.domain.outcome import Outcome

if TYPE_CHECKING:
    from mirage.domain.decision import Observation
    from mirage.domain.job import JobId, JobRequest, Seconds
    from mirage.domain.objective import Weights

Int64 = NDArray[np.int64]

GRID = 30 * 60
"""Seconds between the first candidate submission times; around the best of them every tick is tried."""

_NEVER_BETTER = float("-inf")


class Foresight(Protocol):
    """Runs the future once for each submission time."""

    def start_times(self, request: JobRequest, submit_times: Int64) -> Int64:
        """When the job would start if submitted at each of these times (ascending, not before now)."""


class Oracle:
    """The floor for policies that submit once, before the predecessor's end: best of a grid, pair by pair.

    Not a bound in the strict sense: between grid points a start may be luckier, and a longer chain is taken
    one handover at a time.
    """

    name = "oracle"
    wants = Wants()

    def __init__(self, foresight: Foresight, weights: Weights, tick: Seconds) -> None:
        self._foresight = foresight
        self._weights = weights
        self._tick = tick
        self._predecessor: JobId | None = None
        self._scores: dict[Seconds, float] = {}

    def predict(self, observation: Observation) -> ActionScores:
        """The objective of submitting now, and the best objective of any later time tried."""
        predecessor = observation.predecessor
        assert predecessor is not None
        if predecessor.job_id != self._predecessor:
            self._scores = self._look_ahead(observation.time, predecessor.end, observation.successor)
            self._predecessor = predecessor.job_id
        now = observation.time
        later = (score for time, score in self._scores.items() if time > now)
        return ActionScores(self._scores.get(now, _NEVER_BETTER), max(later, default=_NEVER_BETTER))

    def _look_ahead(self, now: Seconds, end: Seconds, request: JobRequest) -> dict[Seconds, float]:
        step = max(1, GRID // self._tick) * self._tick
        scores = self._try(np.append(np.arange(now, end, step), end), end, request)
        best = max(scores, key=scores.__getitem__)
        around = np.arange(max(now, best - step), min(end, best + step) + 1, self._tick)
        fresh = np.array([time for time in around if time not in scores], dtype=np.int64)
        return scores | self._try(fresh, end, request)

    def _try(self, times: Int64, end: Seconds, request: JobRequest) -> dict[Seconds, float]:
        starts = self._foresight.start_times(request, times)
        return {
            int(time): objective(Outcome(end, int(start)), self._weights)
            for time, start in zip(times, starts, strict=True)
        }

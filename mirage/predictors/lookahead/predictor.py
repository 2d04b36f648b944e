"""Look-ahead: plays the coming days many times on the simulator, and weighs submitting now against later.

All submit times are tried in the same futures, so that their costs differ by the submit time alone. The best
later time is the best of a few fixed ones (open-loop planning: what is learnt until then counts for nothing,
which makes holding look a little worse than it is).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mirage.domain.decision import ActionScores, WaitForecast, Wants
from mirage.domain.job import ABSENT
from mirage.domain.objective import Weights
from mirage.predictors.lookahead.arrivals import SPAN
from mirage.predictors.lookahead.sampling import Outlook
from mirage.simulator.resume import Resumption

if TYPE_CHECKING:
    from mirage.domain.decision import Observation, Prediction
    from mirage.domain.job import Seconds
    from mirage.simulator.cluster import ClusterConfig

Int64 = NDArray[np.int64]
Floats = NDArray[np.float64]

HOUR = 3_600
LEVELS = (0.1, 0.25, 0.5, 0.75, 0.9)

BEYOND = 3 * 24 * HOUR
"""How long after the predecessor's end the successor's start is still told from never."""

LATER = (HOUR // 2, 2 * HOUR, 5 * HOUR, 12 * HOUR)
"""Submit times tried besides now and the predecessor's end, from now on."""


@dataclass(frozen=True, slots=True)
class Budget:
    """How many futures are played."""

    screen: int = 16
    """First, for submitting now only: when all of them start far before the predecessor ends, it is too early."""
    batch: int = 48
    """Then so many at a time, until the better action is clear."""
    most: int = 208
    clear: float = 2.5
    """Standard errors by which the costs of the two actions must differ to be clear."""


class Lookahead:
    """The predictor. Its answer depends on the observation and the seed alone."""

    name = "lookahead"

    def __init__(
        self,
        cluster: ClusterConfig,
        seed: int = 0,
        weights: Weights | None = None,
        budget: Budget | None = None,
    ) -> None:
        """``cluster``: as its configuration says, right or wrong; how many nodes are down is seen in the queue."""
        self._resumption = Resumption(cluster)
        self._seed = seed
        self._weights = weights or Weights()
        self._budget = budget or Budget()

    @property
    def wants(self) -> Wants:
        """The queue, and the jobs of the weeks that futures are drawn from."""
        return Wants(queue=True, history=SPAN)

    def predict(self, observation: Observation) -> Prediction:
        """Expected objectives of submitting now and of the best later time, with the forecast.

        The forecast alone where it is clearly too early to submit. Raises ``ValueError`` where too little of the
        past is known, ``SubmissionRejected`` where the cluster as configured would refuse the successor.
        """
        now, predecessor = observation.time, observation.predecessor
        end = max(now, predecessor.end) if predecessor is not None and predecessor.end != ABSENT else now
        outlook = Outlook(observation, self._resumption, self._seed, end + BEYOND)
        screened = outlook.starts(np.arange(self._budget.screen), np.array([now]))
        if end == now or screened.max() < end - _margin(end - now):
            return _forecast(screened[:, 0])
        return self._weigh(outlook, now, end)

    def _weigh(self, outlook: Outlook, now: Seconds, end: Seconds) -> ActionScores:
        times, budget = _submit_times(now, end), self._budget
        starts = np.empty((0, len(times)), dtype=np.int64)
        while len(starts) < budget.most:
            futures = np.arange(len(starts), min(len(starts) + budget.batch, budget.most))
            starts = np.concatenate([starts, outlook.starts(futures, times)])
            costs = _costs(starts - end, self._weights)
            best = 1 + int(np.argmin(costs[:, 1:].mean(axis=0)))
            if _clear(costs[:, 0] - costs[:, best], budget.clear):
                break
        means = costs.mean(axis=0)
        return ActionScores(-float(means[0]), -float(means[best]), _forecast(starts[:, 0]))


def _margin(left: Seconds) -> float:
    """How far before the predecessor's end every screened start must be for it to be too early."""
    return max(HOUR, 0.25 * left)


def _submit_times(now: Seconds, end: Seconds) -> Int64:
    later = [now + after for after in LATER if now + after < end]
    return np.array([now, *later, end], dtype=np.int64)


def _costs(x: Int64, weights: Weights) -> Floats:
    """What the objective charges for signed gaps (s)."""
    costs: Floats = weights.interruption * np.maximum(x, 0.0) + weights.overlap * np.maximum(-x, 0.0)
    return costs


def _clear(difference: Floats, errors: float) -> bool:
    spread = float(difference.std(ddof=1)) / np.sqrt(len(difference))
    return bool(abs(difference.mean()) > errors * spread)


def _forecast(starts: Int64) -> WaitForecast:
    return WaitForecast(LEVELS, tuple(np.quantile(starts, LEVELS).tolist()))

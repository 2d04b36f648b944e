"""Ensemble of forecasts: weighted by past losses, and calibrated by past outcomes."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

import numpy as np

from mirage.domain.decision import WaitForecast, forecast_of
from mirage.domain.job import ABSENT
from mirage.features.waitclass import class_of
from mirage.predictors.conformal import QuantileTracker, scaled, unscaled
from mirage.predictors.experience import SPACING, WANTED, ClassExperience
from mirage.predictors.experts import AdaHedge, pinball
from mirage.predictors.members import ENSEMBLE, Members, members_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from mirage.domain.decision import Observation, Prediction
    from mirage.domain.job import Seconds
    from mirage.ports import Predictor

    Floats = NDArray[np.float64]

LEVELS = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)

HORIZON = 12 * 3_600
"""Seconds after which a round updates the weights; longer waits count as this long."""

MEMORY = 0.995
"""Discount factor per round, so that weights reflect some days."""


@dataclass(slots=True)
class _Learnt:
    """State of the ensemble for one class of jobs."""

    weighing: AdaHedge
    tracker: QuantileTracker = field(default_factory=lambda: QuantileTracker(LEVELS))
    experience: ClassExperience = field(default_factory=ClassExperience)
    """Predictions of shape (members, levels): seconds of wait, ``nan`` without a forecast of the member."""
    weighed: Seconds = ABSENT
    """Time of the last round used for the weights."""
    tracked: list[Seconds] = field(default_factory=lambda: [ABSENT] * len(LEVELS))
    """Per level: time of the last round used for the shift."""

    def combined(self, waits: Floats) -> Floats:
        """Combine the members' forecasts with current weights and shifts: shape (levels,).

        The average of quantiles rather than of probabilities (Lichtendahl, Grushka-Cockayne & Winkler, Management
        Science 59, 2013), shifted and, where shifts cross, sorted.
        """
        present = ~np.isnan(waits[:, 0])
        average = _shares(self.weighing.weights[present]) @ waits[present]
        return np.sort(unscaled(scaled(average) + self.tracker.shift))


class Ensemble:
    """Averages its members' quantiles by weight, then shifts them to match their levels.

    A round is a stored forecast with the jobs of the class that were submitted right after it. It updates the
    weights after ``HORIZON``, and the shift of each level once the predicted wait has passed. Both include jobs
    that have not started; otherwise jobs with a short wait would count for more. Weights: ``AdaHedge`` on the
    members' quantile losses. The loss is convex, so the weighted average loses no more than the members on
    average. Shifts: ``QuantileTracker``, applied to the current prediction for the round, so that no error is
    corrected twice.
    """

    def __init__(self, members: Sequence[Predictor], name: str) -> None:
        self.name = name
        self.wants = reduce(or_, (member.wants for member in members), WANTED)
        self._members = Members(members, name)
        self._classes: dict[tuple[str, int, int], _Learnt] = {}

    def predict(self, observation: Observation) -> WaitForecast:
        """Return the combined forecast; a failing member is left out and logged.

        Raises ``ValueError`` that says why where no member has a forecast.
        """
        learnt = self._classes.setdefault(class_of(observation.successor), self._nothing())
        learnt.experience.observe(observation)
        _learn(learnt, observation)
        answers = self._members.ask(observation, lambda prediction: _waits(prediction, observation.time))
        waits = np.array([np.full(len(LEVELS), np.nan) if answer is None else answer for answer in answers])
        learnt.experience.foresee(observation.time, waits)
        return WaitForecast(LEVELS, tuple((observation.time + learnt.combined(waits)).tolist()))

    def _nothing(self) -> _Learnt:
        return _Learnt(AdaHedge(len(self._members.all), MEMORY))


def ensemble_of(parameter: str, build: Callable[[str], Predictor]) -> Ensemble:
    """Build an ensemble from members joined by ``+``. Raises ``ValueError``, and as ``build`` does."""
    return Ensemble([build(name) for name in members_of(ENSEMBLE, parameter)], f"{ENSEMBLE}:{parameter}")


def _waits(prediction: Prediction, now: Seconds) -> Floats:
    """Return the wait in seconds per level. Raises ``ValueError`` without a forecast."""
    forecast = forecast_of(prediction)
    if forecast is None:
        raise ValueError("scores actions and predicts no start")
    waits = np.array([forecast.at(level) for level in LEVELS]) - now
    if not np.isfinite(waits).all():
        raise ValueError(f"predicted nothing usable: {forecast}")
    found: Floats = np.maximum(waits, 0.0)
    return found


def _shares(weights: Floats) -> Floats:
    """Normalise the weights of present members to a sum of 1, also if all are 0."""
    whole = float(weights.sum())
    return weights / whole if whole > 0 else np.full(len(weights), 1 / len(weights))


def _learn(learnt: _Learnt, observation: Observation) -> None:
    """Learn from the rounds that are due."""
    experience, now = learnt.experience, observation.time
    found = experience.outcomes(observation)
    for place, time, foreseen in _after(learnt.weighed, experience):
        if time + SPACING + HORIZON > now:
            break
        _weigh(learnt.weighing, foreseen, found.wait[found.foreseen == place])
        learnt.weighed = time
    for level in range(len(LEVELS)):
        for place, time, foreseen in _after(learnt.tracked[level], experience):
            told = learnt.combined(foreseen)[level]
            if time + SPACING + told > now:
                break
            _track(learnt.tracker, level, found.wait[found.foreseen == place] <= told)
            learnt.tracked[level] = time


def _after(time: Seconds, experience: ClassExperience) -> Iterator[tuple[int, Seconds, Floats]]:
    """Yield position, time and forecasts of the rounds after ``time``."""
    for place in range(bisect_right(experience.times, time), len(experience.times)):
        yield place, experience.times[place], experience.foreseen[place]


def _weigh(weighing: AdaHedge, foreseen: Floats, waits: Floats) -> None:
    """Update the weights of members (members, levels) with the waits of jobs (jobs,)."""
    if not len(waits):
        return
    told, capped = np.minimum(waits, HORIZON), np.minimum(foreseen, HORIZON)
    losses = np.array([pinball(np.array(LEVELS), one, told).mean() for one in capped])
    # A member that was not there is judged like the others.
    weighing.learn(np.where(np.isnan(losses), np.nanmean(losses), losses))


def _track(tracker: QuantileTracker, level: int, covered: NDArray[np.bool_]) -> None:
    """Update the shift of one level with its covered and uncovered jobs."""
    if not len(covered):
        return
    shares = np.full(len(LEVELS), np.nan)
    shares[level] = covered.mean()
    tracker.learn(shares)

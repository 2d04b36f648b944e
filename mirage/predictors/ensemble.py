"""Several forecasts made one: each relied on as it has earned, the whole calibrated by what came of it."""

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
"""Seconds after which members are judged by a round; longer waits all count as this long."""

MEMORY = 0.995
"""By how much a round counts less with each one after it: weights are made of some days."""


@dataclass(slots=True)
class _Learnt:
    """What is known of the members for one class of jobs."""

    weighing: AdaHedge
    tracker: QuantileTracker = field(default_factory=lambda: QuantileTracker(LEVELS))
    experience: ClassExperience = field(default_factory=ClassExperience)
    """What is predicted has shape (members, levels): seconds of wait, ``nan`` where a member had no forecast."""
    weighed: Seconds = ABSENT
    """When the last round was predicted that members were judged by."""
    tracked: list[Seconds] = field(default_factory=lambda: [ABSENT] * len(LEVELS))
    """The same of each level's shift."""

    def combined(self, waits: Floats) -> Floats:
        """One forecast out of the members', as it is to be given by all that is known: shape (levels,).

        The average of quantiles rather than of probabilities (Lichtendahl, Grushka-Cockayne & Winkler, Management
        Science 59, 2013), shifted and, where shifts cross, sorted.
        """
        present = ~np.isnan(waits[:, 0])
        average = _shares(self.weighing.weights[present]) @ waits[present]
        return np.sort(unscaled(scaled(average) + self.tracker.shift))


class Ensemble:
    """Averages its members' quantiles by weight, then shifts them to be exceeded as often as their levels say.

    A round is a remembered forecast with the jobs of the class that were submitted right after it. Members are
    judged by it ``HORIZON`` later, and each level as soon as that much time has passed as it predicts, whether its
    jobs have started or not: judged by what has started only, jobs that start soon would count for more. Weights:
    ``AdaHedge`` on the members' quantile losses; the average by weight loses no more than the members do on
    average, since the loss is convex. Shifts: ``QuantileTracker``, by what would be predicted of the round now, so
    that what was learned since it began is not learned again.
    """

    def __init__(self, members: Sequence[Predictor], name: str) -> None:
        self.name = name
        self.wants = reduce(or_, (member.wants for member in members), WANTED)
        self._members = Members(members, name)
        self._classes: dict[tuple[str, int, int], _Learnt] = {}

    def predict(self, observation: Observation) -> WaitForecast:
        """The combined forecast; a member that fails is left out, which is logged.

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
    """The ensemble of the members named, ``+`` between them. Raises ``ValueError``, and as ``build`` does."""
    return Ensemble([build(name) for name in members_of(ENSEMBLE, parameter)], f"{ENSEMBLE}:{parameter}")


def _waits(prediction: Prediction, now: Seconds) -> Floats:
    """The wait in seconds at each level. Raises ``ValueError`` where none is predicted."""
    forecast = forecast_of(prediction)
    if forecast is None:
        raise ValueError("scores actions and predicts no start")
    waits = np.array([forecast.at(level) for level in LEVELS]) - now
    if not np.isfinite(waits).all():
        raise ValueError(f"predicted nothing usable: {forecast}")
    found: Floats = np.maximum(waits, 0.0)
    return found


def _shares(weights: Floats) -> Floats:
    """Of the members that are there: they sum to 1, also where none of these has earned anything."""
    whole = float(weights.sum())
    return weights / whole if whole > 0 else np.full(len(weights), 1 / len(weights))


def _learn(learnt: _Learnt, observation: Observation) -> None:
    """Take the rounds into account that are due."""
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
    """The rounds predicted after ``time``: place, time and forecasts of each."""
    for place in range(bisect_right(experience.times, time), len(experience.times)):
        yield place, experience.times[place], experience.foreseen[place]


def _weigh(weighing: AdaHedge, foreseen: Floats, waits: Floats) -> None:
    """Judge members (members, levels) by what jobs (jobs,) waited."""
    if not len(waits):
        return
    told, capped = np.minimum(waits, HORIZON), np.minimum(foreseen, HORIZON)
    losses = np.array([pinball(np.array(LEVELS), one, told).mean() for one in capped])
    # A member that was not there is judged like the others.
    weighing.learn(np.where(np.isnan(losses), np.nanmean(losses), losses))


def _track(tracker: QuantileTracker, level: int, covered: NDArray[np.bool_]) -> None:
    """Judge one level by the jobs that it covered and those that it did not."""
    if not len(covered):
        return
    shares = np.full(len(LEVELS), np.nan)
    shares[level] = covered.mean()
    tracker.learn(shares)

"""Several predictors as one: forecasts weighted by past losses (AdaHedge) and calibrated, or a majority vote."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

import numpy as np

from mirage.domain.decision import ActionScores, WaitForecast, checked, forecast_of
from mirage.domain.job import ABSENT
from mirage.domain.quantileloss import pinball
from mirage.features.waitclass import class_of
from mirage.predictors.baselines import CLASS_LEVELS
from mirage.predictors.members import ENSEMBLE, VOTE, Members, members_of
from mirage.predictors.past_predictions import SPACING, WANTED, ClassExperience, QuantileTracker, scaled, unscaled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from mirage.domain.decision import Observation, Prediction
    from mirage.domain.job import Seconds
    from mirage.domain.objective import Weights
    from mirage.ports import Predictor

_HALF = 0.5
"""Threshold: half of the votes is not a majority for submitting."""


class Vote:
    """Majority vote: each member's forecast or scores decide whether it would submit now.

    Its forecast is the mean of the members' quantiles (Lichtendahl, Grushka-Cockayne & Winkler,
    Management Science 59, 2013); it decides for chains that want something else than the least cost.
    """

    def __init__(self, members: Sequence[Predictor], name: str, weights: Weights) -> None:
        """``weights``: determine the quantile that is compared with the predecessor's end."""
        self.name = name
        self.wants = reduce(or_, (member.wants for member in members))
        self._members = Members(members, name)
        self._level = weights.critical_level

    def predict(self, observation: Observation) -> Prediction:
        """Return the votes as scores, or a forecast without a predecessor; a failing member is left out.

        Raises ``ValueError`` that says why where no member answers.
        """
        asked = self._members.ask(observation, checked)
        answers = {
            member.name: answer
            for member, answer in zip(self._members.all, asked, strict=True)
            if answer is not None
        }
        return majority(answers, observation, self._level)


def majority(answers: Mapping[str, Prediction], observation: Observation, level: float) -> Prediction:
    """Return the votes as scores, or a forecast if no predecessor runs.

    ``answers``: by the names of those who gave them; ``level``: see ``would_submit``. Raises ``ValueError`` where
    no predecessor runs and none has a forecast.
    """
    forecast = _mean([forecast_of(answer) for answer in answers.values()])
    predecessor = observation.predecessor
    if predecessor is None or predecessor.end == ABSENT:
        if forecast is None:
            raise ValueError("its members score actions, which requires a predecessor")
        return forecast
    votes = {name: would_submit(answer, predecessor.end, level) for name, answer in answers.items()}
    submit = sum(votes.values())
    return ActionScores(submit, len(votes) - submit + _HALF, forecast, _said(votes))


def would_submit(prediction: Prediction, end: float, level: float) -> bool:
    """Return whether a prediction favours submitting now: by scores, or if its quantile reaches ``end``."""
    if isinstance(prediction, ActionScores):
        return prediction.submit >= prediction.hold
    return prediction.at(level) >= end


def vote_of(parameter: str, build: Callable[[str], Predictor], weights: Weights) -> Vote:
    """Build a vote from members joined by ``+``. Raises ``ValueError``, and as ``build`` does."""
    return Vote([build(name) for name in members_of(VOTE, parameter)], f"{VOTE}:{parameter}", weights)


def _mean(forecasts: Sequence[WaitForecast | None]) -> WaitForecast | None:
    """Return the combined forecast; ``None`` if no member predicts a start."""
    starts = [[forecast.at(level) for level in CLASS_LEVELS] for forecast in forecasts if forecast is not None]
    finite = [row for row in starts if np.isfinite(row).all()]
    return WaitForecast(CLASS_LEVELS, tuple(np.mean(finite, axis=0).tolist())) if finite else None


def _said(votes: dict[str, bool]) -> str:
    """Return the votes in words."""
    for_it, against = ([name for name, vote in votes.items() if vote is side] for side in (True, False))
    parts = [f"{', '.join(for_it)} would submit now"] if for_it else []
    parts += [f"{', '.join(against)} would hold"] if against else []
    return f"{len(for_it)} of {len(votes)} would submit now: {'; '.join(parts)}"


if TYPE_CHECKING:
    Floats = NDArray[np.float64]


class AdaHedge:
    """Weights of predictors; equal before the first round.

    De Rooij, van Erven, Grunwald & Koolen (JMLR 15, 2014): exponential weights whose rate falls with the gap
    between the mixture's loss and the mix loss, so that nothing is to be tuned and losses may have any scale.
    Against the best of K advisers the expected loss is worse by at most
    ``sqrt(sum(s**2) ln K) + max(s) (4/3 ln K + 2)``, s being each round's spread of losses (their Theorem 8).
    """

    def __init__(self, advisers: int, memory: float = 1.0) -> None:
        """``memory``: discount factor of past losses per round; 1: no discount, as in the proven bound."""
        self._memory = memory
        self._total: Floats = np.zeros(advisers)
        self._gap = 0.0

    @property
    def weights(self) -> Floats:
        """Current weights, which sum to 1."""
        return self._mix()[0]

    def learn(self, losses: Floats) -> None:
        """Update with the loss of each predictor in one round."""
        weights, before = self._mix()
        self._total = self._total + losses
        # Rounding may make it slightly negative.
        gap = max(0.0, float(weights @ losses) - (self._mix()[1] - before))
        self._gap = self._memory * (self._gap + gap)
        self._total = self._memory * self._total

    def _mix(self) -> tuple[Floats, float]:
        """Weights and mix loss at the learning rate of the gap; without a gap the best share all weight."""
        least = float(self._total.min())
        if self._gap == 0.0:
            best = self._total == least
            return best / best.sum(), least
        rate = float(np.log(len(self._total))) / self._gap
        weights = np.exp(-rate * (self._total - least))
        return weights / weights.sum(), least - float(np.log(weights.mean())) / rate


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
    losses = np.array([pinball(told, one, LEVELS).mean(axis=-1).mean() for one in capped])
    # A member that was not there is judged like the others.
    weighing.learn(np.where(np.isnan(losses), np.nanmean(losses), losses))


def _track(tracker: QuantileTracker, level: int, covered: NDArray[np.bool_]) -> None:
    """Update the shift of one level with its covered and uncovered jobs."""
    if not len(covered):
        return
    shares = np.full(len(LEVELS), np.nan)
    shares[level] = covered.mean()
    tracker.learn(shares)

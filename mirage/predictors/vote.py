"""The majority of several predictors: submit as soon as more than half of them would."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

import numpy as np

from mirage.domain.decision import ActionScores, WaitForecast, checked, forecast_of
from mirage.domain.job import ABSENT
from mirage.predictors.members import VOTE, Members, members_of
from mirage.predictors.quantile import LEVELS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mirage.domain.decision import Observation, Prediction
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
    starts = [[forecast.at(level) for level in LEVELS] for forecast in forecasts if forecast is not None]
    finite = [row for row in starts if np.isfinite(row).all()]
    return WaitForecast(LEVELS, tuple(np.mean(finite, axis=0).tolist())) if finite else None


def _said(votes: dict[str, bool]) -> str:
    """Return the votes in words."""
    for_it, against = ([name for name, vote in votes.items() if vote is side] for side in (True, False))
    parts = [f"{', '.join(for_it)} would submit now"] if for_it else []
    parts += [f"{', '.join(against)} would hold"] if against else []
    return f"{len(for_it)} of {len(votes)} would submit now: {'; '.join(parts)}"

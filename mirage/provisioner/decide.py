"""Submit now or hold: the one rule that turns a prediction into a decision. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirage.domain.decision import ActionScores, Decision, Hold, Submit, WaitForecast
from mirage.domain.job import ABSENT, JobState

if TYPE_CHECKING:
    from mirage.domain.decision import Observation, Prediction
    from mirage.domain.job import Seconds


@dataclass(frozen=True, slots=True)
class DecisionRule:
    """How a wait forecast is read."""

    level: float = 0.5
    """Which quantile of the start counts; see ``Weights.critical_level``."""
    margin: Seconds = 0
    """Submit when the forecast start is no earlier than this long before the predecessor's end."""


def forced(observation: Observation) -> Decision | None:
    """The decision where no prediction is asked: stale data, no predecessor, or one not running."""
    if observation.snapshot.stale:
        return Hold("the controller does not answer: what it last said may no longer be so")
    predecessor = observation.predecessor
    if predecessor is None:
        return Submit("no link of the chain is on the cluster")
    if predecessor.state.finished or predecessor.end <= observation.time:
        return Submit("the predecessor has ended")
    if predecessor.state is not JobState.RUNNING or predecessor.end == ABSENT:
        return Hold("the predecessor has not started: its end is not known")
    return None


def decide(observation: Observation, prediction: Prediction, rule: DecisionRule) -> Decision:
    """Submit when a successor submitted now would not start before its predecessor ends.

    Asks ``forced`` first. Later submission never makes the start earlier for a given queue, so the first
    instant at which the forecast start reaches the predecessor's end is the one to take.
    """
    return forced(observation) or weigh(observation, prediction, rule)


def weigh(observation: Observation, prediction: Prediction, rule: DecisionRule) -> Decision:
    """``decide`` for a running predecessor: the prediction alone decides."""
    assert observation.predecessor is not None
    if isinstance(prediction, ActionScores):
        return _by_scores(prediction)
    return _by_forecast(prediction, observation.time, observation.predecessor.end, rule)


def _by_scores(scores: ActionScores) -> Decision:
    if scores.submit >= scores.hold:
        return Submit(f"submitting now scores {scores.submit:.6g}, holding {scores.hold:.6g}")
    return Hold(f"holding scores {scores.hold:.6g}, submitting now {scores.submit:.6g}")


def _by_forecast(forecast: WaitForecast, now: Seconds, end: Seconds, rule: DecisionRule) -> Decision:
    start = forecast.at(rule.level)
    wait, left = hours(start - now), hours(end - now)
    if start >= end - rule.margin:
        return Submit(f"submitted now it would wait {wait}, the predecessor has {left} left")
    return Hold(f"submitted now it would wait only {wait} of the {left} the predecessor has left")


def hours(seconds: float) -> str:
    """A duration for sentences: ``7.5 h``, ``12 min``, ``0``."""
    if abs(seconds) < 60:
        return f"{seconds:.0f} s" if seconds else "0"
    return f"{seconds / 60:.0f} min" if abs(seconds) < 5_400 else f"{seconds / 3_600:.1f} h"

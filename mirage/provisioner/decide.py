"""Submit now or hold: the one rule that turns a prediction into a decision. Pure.

Probabilities and means of a forecast at one time are exact for its piecewise linear quantiles.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from mirage.domain.decision import ActionScores, Decision, Defer, Submit, WaitForecast, forecast_of
from mirage.domain.job import ABSENT, NEVER, JobState
from mirage.domain.objective import CHEAPEST, Objective, ObjectiveKind

if TYPE_CHECKING:
    from mirage.domain.chain import Chain
    from mirage.domain.decision import Observation, Prediction
    from mirage.domain.job import Seconds


def chance_before(forecast: WaitForecast, instant: float) -> float:
    """The probability of a start before ``instant``; what lies beyond the outermost levels is at their starts."""
    starts, levels = forecast.starts, forecast.levels
    above = int(np.searchsorted(starts, instant, side="left"))
    if above in (0, len(starts)):
        return float(above > 0)
    share = (instant - starts[above - 1]) / (starts[above] - starts[above - 1])
    return levels[above - 1] + share * (levels[above] - levels[above - 1])


def expected_overlap(forecast: WaitForecast, end: float) -> float:
    """Mean of the seconds by which the start comes before ``end``: the integral of the quantiles below it."""
    early = np.maximum(end - np.array(forecast.starts), 0.0)
    levels = np.array(forecast.levels)
    below = chance_before(forecast, end)
    # Trapezoids between the levels below ``end``, a triangle up to it; rectangles where quantiles are constant.
    inside = levels < below
    places, heights = np.append(levels[inside], below), np.append(early[inside], 0.0)
    if below == 1.0:
        heights[-1] = early[-1]
    whole = float(np.trapezoid(heights, places)) if len(places) > 1 else 0.0
    return whole + float(levels[0] * early[0])


@dataclass(frozen=True, slots=True)
class DecisionRule:
    """Quantile and margin by which a wait forecast becomes a decision."""

    level: float = 0.5
    """Which quantile of the start counts; see ``Weights.critical_level``."""
    margin: Seconds = 0
    """Submit when the forecast start is no earlier than this long before the predecessor's end."""
    early: float = 0.125
    """Cost of a second by which a predecessor is ended early, if one of interruption costs ``level`` and
    one with both links ``1 - level``."""
    aim: Objective = CHEAPEST
    """The chain's."""
    together: float = float("inf")
    """Maximum overlap, s: then the predecessor is ended."""

    def of(self, chain: Chain) -> DecisionRule:
        """The rule for the handovers of one chain."""
        return replace(self, aim=chain.aim, together=chain.handover.together)

    @property
    def is_plain(self) -> bool:
        """Whether interruption and overlap have but their prices, which predictors that score actions know."""
        return self.aim.kind is ObjectiveKind.CHEAPEST and self.together == float("inf")


def forced(observation: Observation) -> Decision | None:
    """The decision where no prediction is asked: stale data, no predecessor, or one not running."""
    if observation.snapshot.stale:
        return Defer("the controller does not answer: the last snapshot may be out of date")
    predecessor = observation.predecessor
    if predecessor is None:
        return Submit("no link of the chain is on the cluster")
    if predecessor.state is JobState.SUSPENDED:  # Slurm does not count this time towards the limit
        return Defer("the predecessor is suspended: its end is unknown")
    if predecessor.state.finished or predecessor.end <= observation.time:
        return Submit("the predecessor has ended")
    if predecessor.state is not JobState.RUNNING or predecessor.end == ABSENT:
        return Defer("the predecessor has not started: its end is unknown")
    return None


def decide(observation: Observation, prediction: Prediction, rule: DecisionRule) -> Decision:
    """Submit when a successor submitted now would not start before its predecessor ends.

    Asks ``forced`` first. Later submission never makes the start earlier for a given queue, so the first
    time at which the forecast start reaches the predecessor's end is the one to take.
    """
    return forced(observation) or weigh(observation, prediction, rule)


def weigh(observation: Observation, prediction: Prediction, rule: DecisionRule) -> Decision:
    """``decide`` for a running predecessor: the prediction alone decides.

    Scores weigh interruption against overlap by their prices. If the chain has another objective, the forecast
    in the scores decides; if they have none, the reason says so.
    """
    assert observation.predecessor is not None
    now, end = observation.time, observation.predecessor.end
    forecast = forecast_of(prediction)
    if isinstance(prediction, ActionScores) and (rule.is_plain or forecast is None):
        return _by_scores(prediction, rule)
    assert forecast is not None
    decision = _by_forecast(forecast, now, end, rule)
    return replace(decision, reason=f"{decision.reason}; from {forecast.basis}") if forecast.basis else decision


def submission_due(observation: Observation, prediction: Prediction, rule: DecisionRule) -> Seconds:
    """The first time at which ``prediction`` would submit, its wait being as long then.

    Asked after ``weigh`` held; the predecessor's end at the latest, and ``NEVER`` where no start is predicted.
    """
    assert observation.predecessor is not None
    now, end = observation.time, observation.predecessor.end
    if (forecast := forecast_of(prediction)) is None:
        return NEVER
    holds, submits = now, end
    while submits - holds > 1:
        middle = (holds + submits) // 2
        # A later submission starts as much later; the forecast stays, and the end comes nearer instead.
        if isinstance(_by_forecast(forecast, now, end - (middle - now), rule), Defer):
            holds = middle
        else:
            submits = middle
    return submits


def _by_forecast(forecast: WaitForecast, now: Seconds, end: Seconds, rule: DecisionRule) -> Decision:
    match rule.aim.kind:
        case ObjectiveKind.NO_INTERRUPTION:
            return _by_chance(forecast, end, rule)
        case ObjectiveKind.OVERLAP:
            return _by_overlap(forecast, end, rule)
        case ObjectiveKind.CHEAPEST:
            return _by_cost(forecast, now, end, rule)


def _by_scores(scores: ActionScores, rule: DecisionRule) -> Decision:
    unheard = (
        ""
        if rule.aim.kind is ObjectiveKind.CHEAPEST
        else f"; {rule.aim.kind} needs a predicted start, and there is none"
    )
    if scores.submit >= scores.hold:
        told = f"submitting now scores {scores.submit:.6g}, holding {scores.hold:.6g}"
        return Submit(f"{scores.basis or told}{unheard}")
    told = f"holding scores {scores.hold:.6g}, submitting now {scores.submit:.6g}"
    return Defer(f"{scores.basis or told}{unheard}")


def _by_chance(forecast: WaitForecast, end: Seconds, rule: DecisionRule) -> Decision:
    """Submit when further waiting would leave a smaller chance than the objective requires."""
    chance = chance_before(forecast, end)
    told = f"submitted now it starts in time with probability {chance:.0%} (objective {rule.aim.value:.0%})"
    return Submit(told) if forecast.at(rule.aim.value) >= end - rule.margin else Defer(told)


def _by_overlap(forecast: WaitForecast, end: Seconds, rule: DecisionRule) -> Decision:
    """Submit as soon as the expected overlap is within the objective."""
    overlap = expected_overlap(forecast, end)
    told = f"submitted now its expected overlap is {hours(overlap)} (objective at most {hours(rule.aim.value)})"
    return Submit(told) if overlap <= rule.aim.value else Defer(told)


def _by_cost(forecast: WaitForecast, now: Seconds, end: Seconds, rule: DecisionRule) -> Decision:
    start = forecast.at(rule.level)
    wait, left = hours(start - now), hours(end - now)
    if forecast.rule:
        told = f"{forecast.rule}, which is in {left}"
        return Submit(told) if _is_cheaper_now(forecast, end - rule.margin, rule) else Defer(told)
    if _is_cheaper_now(forecast, end - rule.margin, rule):
        told = f"submitted now it would wait {wait}; the predecessor ends in {left}"
        if start < end - rule.margin:
            late = 1.0 - chance_before(forecast, end)
            told = f"{told}; a late start (probability {late:.0%}) would cost more than an early replacement"
        return Submit(told)
    return Defer(f"submitted now it would wait only {wait}; the predecessor ends in {left}")


def _is_cheaper_now(forecast: WaitForecast, end: Seconds, rule: DecisionRule) -> bool:
    """Whether submitting a second later would cost more, the wait being as long then.

    A second later costs one more second of interruption if the successor starts late. If it starts early, that
    saves a second of overlap or, if the predecessor would have been ended by then, a second of the predecessor.
    Without such an early end this is the newsvendor's quantile (``Weights.critical_level``).
    """
    if rule.together == float("inf"):
        return forecast.at(rule.level) >= end
    early, yielded = chance_before(forecast, end), chance_before(forecast, end - rule.together)
    saved = (1.0 - rule.level) * (early - yielded) + rule.early * yielded
    return rule.level * (1.0 - early) >= saved


def hours(seconds: float) -> str:
    """A duration for sentences: ``7.5 h``, ``12 min``, ``0``."""
    if abs(seconds) < 60:
        return f"{seconds:.0f} s" if seconds else "0"
    return f"{seconds / 60:.0f} min" if abs(seconds) < 5_400 else f"{seconds / 3_600:.1f} h"

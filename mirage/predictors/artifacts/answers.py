"""What the numbers of a model mean, and how they become predictions."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from mirage.domain.decision import ActionScores, WaitForecast
from mirage.domain.job import ABSENT

if TYPE_CHECKING:
    from mirage.domain.decision import Observation

Float64 = NDArray[np.float64]

HOUR = 3_600

LEVELS = tuple(round(0.05 * step, 2) for step in range(1, 20))
"""At which a distribution is read."""

_RISE = 1e-9
"""Added from step to step where a distribution is flat, so that every level has one place."""


@dataclass(frozen=True, slots=True)
class WaitQuantiles:
    """Output shape (levels,): quantiles of the wait in hours if the successor is submitted now."""

    levels: tuple[float, ...]
    """Ascending, within 0 and 1."""
    kind: Literal["wait-quantiles"] = "wait-quantiles"

    @property
    def width(self) -> int:
        """Numbers for each observation."""
        return len(self.levels)

    def quantiles(self, output: Float64) -> Float64:
        """Shape (..., levels), hours, never negative nor descending.

        Quantiles learned one by one may cross; sorting them is the rearrangement of Chernozhukov, Fernandez-Val &
        Galichon (Econometrica 78, 2010), which is never worse.
        """
        return np.sort(np.maximum(output, 0.0), axis=-1)

    def prediction(self, output: Float64, observation: Observation) -> WaitForecast:
        """One observation's answer."""
        return _forecast(self.levels, self.quantiles(output), observation)


@dataclass(frozen=True, slots=True)
class WaitDistribution:
    """Output shape (hours,): the probability that the wait is at most ``hours``."""

    hours: tuple[float, ...]
    """Ascending, from 0."""
    levels: tuple[float, ...] = LEVELS
    kind: Literal["wait-distribution"] = "wait-distribution"

    @property
    def width(self) -> int:
        """Numbers for each observation."""
        return len(self.hours)

    def quantiles(self, output: Float64) -> Float64:
        """Shape (..., levels), hours: the inverse, linear between the hours known and constant outside them."""
        rising = np.maximum.accumulate(output, axis=-1) + _RISE * np.arange(self.width)
        rows = rising.reshape(-1, self.width)
        found = np.array([np.interp(self.levels, row, self.hours) for row in rows])
        return found.reshape(*output.shape[:-1], len(self.levels))

    def prediction(self, output: Float64, observation: Observation) -> WaitForecast:
        """One observation's answer."""
        return _forecast(self.levels, self.quantiles(output), observation)


@dataclass(frozen=True, slots=True)
class Scores:
    """Output shape (2,): how good it is to hold, and to submit, in that order; higher is better."""

    min_lead: float = 0.0
    """Hours before the predecessor's end from which the successor is submitted whatever the model says."""
    max_lead: float = field(default=1e6)
    """Hours before the predecessor's end until which it is not submitted whatever the model says."""
    kind: Literal["action-scores"] = "action-scores"

    @property
    def width(self) -> int:
        """Numbers for each observation."""
        return 2

    def prediction(self, output: Float64, observation: Observation) -> ActionScores:
        """One observation's answer, within the leads."""
        hold, submit = map(float, output)
        predecessor = observation.predecessor
        if predecessor is not None and predecessor.end != ABSENT:
            left = (predecessor.end - observation.time) / HOUR
            if left > self.max_lead:
                return ActionScores(submit=min(submit, hold - 1), hold=hold)
            if left < self.min_lead:
                return ActionScores(submit=max(submit, hold), hold=hold)
        return ActionScores(submit=submit, hold=hold)


Answers = WaitQuantiles | WaitDistribution | Scores


def answers_from(document: dict[str, Any]) -> Answers:
    """As a manifest has it. Raises ``ValueError``, ``TypeError`` or ``KeyError`` for what makes no sense."""
    numbers = {name: _ascending(name, document[name]) for name in ("levels", "hours") if name in document}
    filled: dict[str, Any] = document | numbers
    match document["kind"]:
        case "wait-quantiles":
            return WaitQuantiles(**filled)
        case "wait-distribution":
            return WaitDistribution(**filled)
        case "action-scores":
            return Scores(**filled)
    raise ValueError(f"answers of kind {document['kind']!r}: not known here")


def _ascending(name: str, values: list[float]) -> tuple[float, ...]:
    found = tuple(float(value) for value in values)
    top = 1.0 if name == "levels" else float("inf")
    rising = all(one < other for one, other in pairwise(found))
    if not (found and rising and found[0] >= 0 and found[-1] <= top):
        raise ValueError(f"{name} must ascend from 0: {found}")
    return found


def _forecast(levels: tuple[float, ...], hours: Float64, observation: Observation) -> WaitForecast:
    starts = observation.time + hours * HOUR
    return WaitForecast(levels, tuple(float(start) for start in starts))

"""The baseline predictors: no wait, a fixed lead, the mean wait, and quantiles of the waits of the job's class."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mirage.domain.decision import WaitForecast, Wants
from mirage.features.waitclass import SEARCHED, class_waits, describe_waits, nothing_started
from mirage.slurm.duration import spell

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mirage.domain.decision import Observation
    from mirage.domain.job import Seconds


class AverageWait:
    """The ``avg`` baseline of Mirage's authors (the last 100 jobs), renewed at every decision."""

    def __init__(self, count: int, name: str) -> None:
        self.name = name
        self.wants = Wants(waits=count)

    def predict(self, observation: Observation) -> WaitForecast:
        """Now plus the mean wait. Raises ``ValueError`` while no job of the partition has started."""
        # There are more if another predictor requires more.
        recent = observation.waits.last(self.wants.waits)
        if not len(recent):
            raise ValueError(nothing_started(recent))
        basis = describe_waits(len(recent), recent.partition, "any size", "any limit")
        return WaitForecast.point(observation.time + float(recent.wait.sum()) / len(recent), basis)


class FixedLead:
    """Rule of production chains with a configured handover time that ignore the queue."""

    wants = Wants()

    def __init__(self, lead: Seconds, name: str) -> None:
        self.name = name
        self._lead = lead

    def predict(self, observation: Observation) -> WaitForecast:
        """Return a start after the lead."""
        rule = f"it submits {spell(self._lead)} before the predecessor's end"
        return WaitForecast.point(observation.time + self._lead, rule=rule)


class Reactive:
    """Behaves like a user who submits the next job when the last one has ended. Never overlaps."""

    wants = Wants()

    name = "reactive"

    def __init__(self, basis: str = "") -> None:
        """``basis``: reason for expecting no wait."""
        self._basis = basis

    def predict(self, observation: Observation) -> WaitForecast:
        """Return a start now."""
        return WaitForecast.point(observation.time, self._basis, "it submits when the predecessor has ended")


CLASS_LEVELS = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)
"""Default levels of a forecast; the decision uses the level that follows from the prices."""


class QuantileOfClass:
    """Quantiles as in QBETS (Nurmi, Brevik & Wolski, JSSPP 2007), without its confidence bound."""

    wants = Wants(waits=SEARCHED)

    def __init__(self, level: float | None, name: str) -> None:
        """``level``: forecast only this quantile; ``quantile:0.9`` tends to overlap."""
        if level is not None and not 0 <= level <= 1:
            raise ValueError(f"the level must be within 0 and 1, not {level}")
        self.name = name
        self._level = level

    def predict(self, observation: Observation) -> WaitForecast:
        """Now plus the quantiles of the class. Raises ``ValueError`` while no job of the partition has started."""
        found = class_waits(observation.waits, observation.successor)
        if not len(found.wait):
            raise ValueError(nothing_started(observation.waits))
        now = observation.time
        if self._level is not None:
            return WaitForecast.point(now + _quantiles(found.wait, (self._level,))[0], found.basis)
        return WaitForecast(
            CLASS_LEVELS, tuple(now + wait for wait in _quantiles(found.wait, CLASS_LEVELS)), found.basis
        )


def _quantiles(values: NDArray[np.int64], levels: tuple[float, ...]) -> list[float]:
    """Interpolate linearly between order statistics, like ``np.quantile`` but faster."""
    last = len(values) - 1
    found: list[float] = np.interp(np.array(levels) * last, np.arange(last + 1), np.sort(values)).tolist()
    return found

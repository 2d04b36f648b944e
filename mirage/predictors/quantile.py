"""Quantiles of the waits of recent jobs of the successor's class (partition, size and limit)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mirage.domain.decision import WaitForecast, Wants
from mirage.features.waitclass import SEARCHED, class_waits, nothing_started

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mirage.domain.decision import Observation

LEVELS = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)
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
        return WaitForecast(LEVELS, tuple(now + wait for wait in _quantiles(found.wait, LEVELS)), found.basis)


def _quantiles(values: NDArray[np.int64], levels: tuple[float, ...]) -> list[float]:
    """Interpolate linearly between order statistics, like ``np.quantile`` but faster."""
    last = len(values) - 1
    found: list[float] = np.interp(np.array(levels) * last, np.arange(last + 1), np.sort(values)).tolist()
    return found

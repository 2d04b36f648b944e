"""Probabilities and means of a forecast at one time, exact for its piecewise linear quantiles."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from mirage.domain.decision import WaitForecast


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

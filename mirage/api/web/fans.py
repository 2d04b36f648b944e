"""Forecasts of a link's start as a fan: one ray each, oldest on top, from P10 to P90 with a mark at P50."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirage.api.web.wording import seconds_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirage.api.documents.timeline import ForecastPoint
    from mirage.api.web.timeaxis import Axis

RAYS = 9
"""Most rays of a fan, spread evenly over the forecasts."""
_HEIGHT = 4


@dataclass(frozen=True, slots=True)
class Ray:
    """One forecast: x in percent of the width, y in pixels from the top."""

    x1: float
    x2: float
    middle: float
    y: int
    said: bool
    """Whether the decision was to submit."""


@dataclass(frozen=True, slots=True)
class Fan:
    """All forecasts of one link."""

    rays: tuple[Ray, ...]
    height: int
    started: float | None
    """Position of the actual start."""


def draw_fan(points: Sequence[ForecastPoint], axis: Axis) -> Fan:
    """Draw forecasts (oldest first) on ``axis``."""
    known = _spread([point for point in points if _visible(point, axis)])
    rays = tuple(_ray(point, number, axis) for number, point in enumerate(known))
    started = next((seconds_of(point.started) for point in known if point.started), None)
    at = axis.at(started) if started is not None and axis.shows(started) else None
    return Fan(rays, len(rays) * _HEIGHT + 4 if rays else 0, at)


def _visible(point: ForecastPoint, axis: Axis) -> bool:
    low, high = seconds_of(point.p10 or point.p50), seconds_of(point.p90 or point.p50)
    return low is not None and high is not None and high > axis.start and low < axis.end


def _ray(point: ForecastPoint, number: int, axis: Axis) -> Ray:
    middle = seconds_of(point.p50)
    assert middle is not None
    low, high = seconds_of(point.p10), seconds_of(point.p90)
    return Ray(
        x1=axis.at(low if low is not None else middle),
        x2=axis.at(high if high is not None else middle),
        middle=axis.at(middle),
        y=2 + number * _HEIGHT,
        said=point.decision == "submit",
    )


def _spread(points: list[ForecastPoint]) -> list[ForecastPoint]:
    """Select up to ``RAYS`` points, the first and the last included."""
    if len(points) <= RAYS:
        return points
    last = len(points) - 1
    return [points[round(number * last / (RAYS - 1))] for number in range(RAYS)]

"""Calibration curve of a predictor: share of starts against forecast level.

The chart has a fixed size in pixels: a square for the curve, and margins for the scales.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from math import exp, lgamma, log
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mirage.api.routes.predictors import CalibrationPoint

LEFT, TOP, SIDE = 54, 10, 156
"""Position and size of the square, in pixels."""
WIDTH, HEIGHT = LEFT + SIDE + 14, TOP + SIDE + 34
MARKS = tuple(
    (part, round(LEFT + part * SIDE), round(TOP + (1 - part) * SIDE)) for part in (0, 0.25, 0.5, 0.75, 1)
)
"""Marks of both scales: share, and position from left and from top."""
_LIKELY = 0.9


@dataclass(frozen=True, slots=True)
class Curve:
    """Calibration of one predictor, with SVG points."""

    points: tuple[CalibrationPoint, ...]
    dots: tuple[tuple[float, float], ...]
    line: str
    band: str
    """Area of 9 in 10 points of a calibrated predictor with the same number of forecasts."""
    words: str
    """Text alternative."""

    @property
    def forecasts(self) -> int:
        """Largest number of forecasts of a level."""
        return max(point.forecasts for point in self.points)

    @property
    def by_level(self) -> dict[float, CalibrationPoint]:
        """Points by forecast level."""
        return {point.level: point for point in self.points}


def draw_curve(points: Sequence[CalibrationPoint]) -> Curve | None:
    """Return the curve; ``None`` without completed forecasts."""
    if not points:
        return None
    dots = tuple(_place(point.level, point.share) for point in points)
    likely = [(point.level, *likely_shares(point.level, point.forecasts)) for point in points]
    lower = [_place(level, low) for level, low, _ in likely]
    upper = [_place(level, high) for level, _, high in reversed(likely)]
    said = "; ".join(f"P{100 * each.level:.3g}: {each.share:.0%} of {each.forecasts}" for each in points)
    return Curve(
        points=tuple(points),
        dots=dots,
        line=_spelled(dots),
        band=_spelled([_place(0, 0), *lower, _place(1, 1), *upper]),
        words=f"Share of starts by the time predicted. {said}.",
    )


def likely_shares(level: float, forecasts: int) -> tuple[float, float]:
    """Return the 90 % interval of the share of a calibrated predictor (binomial quantiles)."""
    if not 0 < level < 1:
        return level, level
    counts = list(accumulate(_chance(count, forecasts, level) for count in range(forecasts + 1)))
    low = next((count for count, sum_ in enumerate(counts) if sum_ >= (1 - _LIKELY) / 2), 0)
    high = next((count for count, sum_ in enumerate(counts) if sum_ >= (1 + _LIKELY) / 2), forecasts)
    return low / forecasts, high / forecasts


def _chance(count: int, trials: int, level: float) -> float:
    ways = lgamma(trials + 1) - lgamma(count + 1) - lgamma(trials - count + 1)
    return exp(ways + count * log(level) + (trials - count) * log(1 - level))


def _place(level: float, share: float) -> tuple[float, float]:
    return round(LEFT + level * SIDE, 1), round(TOP + (1 - share) * SIDE, 1)


def _spelled(places: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{x:g},{y:g}" for x, y in places)

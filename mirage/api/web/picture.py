"""A chain's links on a time axis: runs, waits, interruptions and overlaps, and the forecasts of starts.

The forecasts of a link's start are a fan: one ray each, oldest on top, from P10 to P90 with a mark at P50.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from mirage.api.web.timeaxis import seconds_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mirage.api.routes.chaindocuments import LinkDocument
    from mirage.api.routes.timeline import ForecastPoint, LinkBar
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


@dataclass(frozen=True, slots=True)
class Stroke:
    """One rectangle, by kind.

    ``ran``, ``ahead`` (remaining time limit), ``wait`` (pending), ``gap`` (interruption), ``both`` (overlap).
    """

    kind: str
    x: float
    width: float


@dataclass(frozen=True, slots=True)
class LinkTimes:
    """The times of a link, epoch seconds."""

    index: int
    running: bool
    submit: int | None
    start: int | None
    end: int | None

    @classmethod
    def of(cls, link: LinkDocument | LinkBar) -> LinkTimes:
        """Return the times of ``link``."""
        instants = (seconds_of(link.submit), seconds_of(link.start), seconds_of(link.end))
        return cls(link.index, link.state == "running", *instants)

    @property
    def instants(self) -> list[int]:
        """The known times."""
        return [instant for instant in (self.submit, self.start, self.end) if instant is not None]

    def strokes(self, axis: Axis, now: int) -> Iterator[Stroke]:
        """Yield its wait and its run."""
        if self.submit is not None:
            yield from _stroke("wait", self.submit, self._until(now), axis)
        if self.start is None:
            return
        if self.running:
            end = self.end if self.end is not None else now
            yield from _stroke("ran", self.start, min(end, now), axis)
            yield from _stroke("ahead", max(self.start, now), end, axis)
        elif self.end is not None:  # the run time of a lost link is unknown
            yield from _stroke("ran", self.start, self.end, axis)

    def _until(self, now: int) -> int:
        """Return the end of its wait."""
        if self.start is not None:
            return self.start
        return self.end if self.end is not None else now


@dataclass(frozen=True, slots=True)
class HandoverSpan:
    """The handover from one link to the next that ran."""

    before: LinkTimes
    after: LinkTimes
    seconds: int
    """Handover offset: above 0 an interruption, below 0 an overlap."""

    def strokes(self, axis: Axis) -> Iterator[Stroke]:
        """Yield its interruption or overlap."""
        assert self.before.end is not None
        assert self.after.start is not None
        if self.seconds > 0:
            yield from _stroke("gap", self.before.end, self.after.start, axis)
        elif self.seconds < 0:
            yield from _stroke("both", self.after.start, self.before.end, axis)


def handovers(lives: Sequence[LinkTimes]) -> tuple[HandoverSpan, ...]:
    """Return the handovers between neighbours that ran, once the first has ended."""
    ran = [life for life in lives if life.start is not None]
    return tuple(
        HandoverSpan(before, after, after.start - before.end)
        for before, after in pairwise(ran)
        if not before.running and before.end is not None and after.start is not None
    )


def chain_strokes(
    links: Sequence[LinkDocument], axis: Axis, now: int, down_since: int | None = None
) -> tuple[Stroke, ...]:
    """Draw all links in one row, handovers on top, and the interruption that lasts since ``down_since``."""
    lives = [LinkTimes.of(link) for link in links]
    drawn = [stroke for life in lives for stroke in life.strokes(axis, now)]
    drawn += [stroke for each in handovers(lives) for stroke in each.strokes(axis)]
    return tuple(drawn + list(_stroke("gap", down_since, now, axis) if down_since is not None else ()))


def _stroke(kind: str, start: int, end: int, axis: Axis) -> Iterator[Stroke]:
    if end > start and end > axis.start and start < axis.end:
        yield Stroke(kind, axis.at(start), max(0.15, axis.width(start, end)))

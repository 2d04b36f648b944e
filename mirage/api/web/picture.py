"""A chain's links on a time axis: runs, waits, interruptions and overlaps, and the forecasts of starts.

The forecasts of a link's start are a fan: one ray each, oldest on top, from P10 to P90 with a mark at P50.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirage.api.web.timeaxis import seconds_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

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
    in_vain: bool = False
    """Whether it ended before its script."""

    @classmethod
    def of(cls, link: LinkDocument | LinkBar) -> LinkTimes:
        """Return the times of ``link``."""
        instants = (seconds_of(link.submit), seconds_of(link.start), seconds_of(link.end))
        return cls(link.index, link.state == "running", *instants, in_vain=bool(getattr(link, "in_vain", False)))

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
    """The handover to a link from those before it."""

    after: LinkTimes
    ran_until: int
    """Until when a link ran before it; for an overlap until when both ran."""

    @property
    def seconds(self) -> int:
        """Handover offset: above 0 an interruption, below 0 an overlap."""
        assert self.after.start is not None
        return self.after.start - self.ran_until

    def strokes(self, axis: Axis) -> Iterator[Stroke]:
        """Yield its interruption or overlap."""
        assert self.after.start is not None
        yield from _stroke("gap", self.ran_until, self.after.start, axis)
        yield from _stroke("both", self.after.start, self.ran_until, axis)


def handovers(lives: Iterable[LinkTimes], now: int) -> tuple[HandoverSpan, ...]:
    """Return the handovers to links that ran, as ``ChainRecord.handovers`` counts them.

    A link may outlast its successors where these fail: what counts is whether any link ran before. An overlap that
    continues is left out, as is a link that ended before its script.
    """
    found = []
    last: LinkTimes | None = None
    for after in lives:
        if after.start is None or after.in_vain:
            continue
        ended = last is not None and not last.running
        if last is not None and (ended or not after.running):
            until = last.end if ended else now
            if until is not None:
                both_end = min(until, after.end) if after.end is not None and not after.running else until
                found.append(HandoverSpan(after, both_end))
        if last is None or (ended and (last.end is None or after.running or (after.end or 0) > last.end)):
            last = after
    return tuple(found)


def chain_strokes(
    links: Sequence[LinkDocument], axis: Axis, now: int, down_since: int | None = None
) -> tuple[Stroke, ...]:
    """Draw all links in one row, handovers on top, and the interruption that lasts since ``down_since``."""
    lives = [LinkTimes.of(link) for link in links]
    drawn = [stroke for life in lives for stroke in life.strokes(axis, now)]
    drawn += [stroke for each in handovers(lives, now) for stroke in each.strokes(axis)]
    return tuple(drawn + list(_stroke("gap", down_since, now, axis) if down_since is not None else ()))


def _stroke(kind: str, start: int, end: int, axis: Axis) -> Iterator[Stroke]:
    if end > start and end > axis.start and start < axis.end:
        yield Stroke(kind, axis.at(start), max(0.15, axis.width(start, end)))

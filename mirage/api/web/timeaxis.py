"""A stretch of time as a horizontal axis: times become percentages of its width."""

from __future__ import annotations

from dataclasses import dataclass

_STEPS = (
    *(60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 3 * 3_600, 6 * 3_600, 12 * 3_600),
    *(86_400, 2 * 86_400, 7 * 86_400, 14 * 86_400, 28 * 86_400, 91 * 86_400, 364 * 86_400),
)
_MOST_TICKS = 7
_DAY = 86_400


@dataclass(frozen=True, slots=True)
class Tick:
    """A mark on the axis."""

    instant: int
    at: float
    """Percent of the width."""
    is_date: bool
    """Whether it is a midnight (UTC): a date says more than a time of day."""


@dataclass(frozen=True, slots=True)
class Axis:
    """From ``start`` to ``end``, ``end`` after ``start``."""

    start: int
    end: int

    @classmethod
    def around(cls, instants: list[int], margin: float = 0.02) -> Axis:
        """The shortest axis that shows all of ``instants`` (at least one), with a little room at both ends."""
        first, last = min(instants), max(instants)
        room = max(30, int((last - first) * margin))
        return cls(first - room, last + room)

    @property
    def length(self) -> int:
        """Seconds."""
        return self.end - self.start

    def at(self, instant: float) -> float:
        """Percent of the width, cut off at both ends."""
        return round(min(100.0, max(0.0, 100.0 * (instant - self.start) / self.length)), 3)

    def shows(self, instant: float) -> bool:
        """Whether it lies on the axis."""
        return self.start <= instant <= self.end

    def width(self, start: float, end: float) -> float:
        """Percent of the width from ``start`` to ``end``; 0 where they are the wrong way round."""
        return round(max(0.0, self.at(end) - self.at(start)), 3)

    @property
    def by_days(self) -> bool:
        """Whether all ticks are of whole days: then none has a time of day, in any zone."""
        return all(tick.is_date for tick in self.ticks)

    @property
    def ticks(self) -> tuple[Tick, ...]:
        """Marks at round times (UTC), at most eight, none so near the ends that its text is cut off."""
        years = -(-self.length // (_MOST_TICKS * _STEPS[-1])) * _STEPS[-1]
        step = next((step for step in _STEPS if self.length / step <= _MOST_TICKS), years)
        first = -(-self.start // step) * step
        marks = (Tick(at, self.at(at), at % _DAY == 0) for at in range(first, self.end + 1, step))
        return tuple(mark for mark in marks if 3 <= mark.at <= 97)

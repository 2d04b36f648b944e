"""Times on pages: in words, and on a horizontal axis in percent of its width."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400


def seconds_of(text: str | None) -> int | None:
    """Parse an API time such as ``2026-11-21T14:36:00Z`` into epoch seconds."""
    return int(datetime.fromisoformat(text).timestamp()) if text else None


def calendar(seconds: float) -> str:
    """Format a time as ``21 Nov 14:36 UTC``, shown until a script converts it to the reader's zone."""
    at = datetime.fromtimestamp(seconds, UTC)
    return f"{at.day} {at:%b %H:%M} UTC"


def span(seconds: float) -> str:
    """Format a duration in its two largest units: ``45 s``, ``5 min``, ``2 h 5 min``, ``3 d 4 h``."""
    whole = round(abs(seconds))
    if whole < _MINUTE:
        return f"{whole} s"
    if whole < _HOUR:
        return f"{whole // _MINUTE} min"
    if whole < _DAY:
        return _two(whole // _HOUR, "h", whole % _HOUR // _MINUTE, "min")
    return _two(whole // _DAY, "d", whole % _DAY // _HOUR, "h")


def signed(seconds: float) -> str:
    """Format a signed duration: ``-5 min``."""
    return f"{'-' if seconds < 0 else ''}{span(seconds)}"


def relative(seconds: float, now: float) -> str:
    """Format a time relative to ``now``: ``in 2 h 5 min``, ``5 min ago``, ``now``."""
    ahead = seconds - now
    if abs(ahead) < 1:
        return "now"
    return f"in {span(ahead)}" if ahead > 0 else f"{span(ahead)} ago"


def _two(large: int, large_unit: str, small: int, small_unit: str) -> str:
    return f"{large} {large_unit} {small} {small_unit}" if small else f"{large} {large_unit}"


_STEPS = (
    *(60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 3 * 3_600, 6 * 3_600, 12 * 3_600),
    *(86_400, 2 * 86_400, 7 * 86_400, 14 * 86_400, 28 * 86_400, 91 * 86_400, 364 * 86_400),
)
_MOST_TICKS = 7
_ONE_DAY = 86_400


@dataclass(frozen=True, slots=True)
class Tick:
    """A mark on the axis."""

    instant: int
    at: float
    """Position in percent of the width."""
    is_date: bool
    """Whether it is midnight (UTC), labelled with the date."""


@dataclass(frozen=True, slots=True)
class Axis:
    """Axis from ``start`` to ``end`` (epoch seconds, ``end`` after ``start``)."""

    start: int
    end: int

    @classmethod
    def around(cls, instants: list[int], margin: float = 0.02) -> Axis:
        """Return the shortest axis around ``instants`` (at least one), with a margin at both ends."""
        first, last = min(instants), max(instants)
        room = max(30, int((last - first) * margin))
        return cls(first - room, last + room)

    @property
    def length(self) -> int:
        """Length of the axis in seconds."""
        return self.end - self.start

    def at(self, instant: float) -> float:
        """Return the position in percent of the width, clipped at both ends."""
        return round(min(100.0, max(0.0, 100.0 * (instant - self.start) / self.length)), 3)

    def shows(self, instant: float) -> bool:
        """Return whether a time is on the axis."""
        return self.start <= instant <= self.end

    def width(self, start: float, end: float) -> float:
        """Return the width from ``start`` to ``end`` in percent; 0 if ``end`` is earlier."""
        return round(max(0.0, self.at(end) - self.at(start)), 3)

    @property
    def by_days(self) -> bool:
        """Whether all ticks are whole days, so that labels have no time of day in any zone."""
        return all(tick.is_date for tick in self.ticks)

    @property
    def ticks(self) -> tuple[Tick, ...]:
        """Up to eight marks at round times (UTC), not so near the ends that labels are clipped."""
        years = -(-self.length // (_MOST_TICKS * _STEPS[-1])) * _STEPS[-1]
        step = next((step for step in _STEPS if self.length / step <= _MOST_TICKS), years)
        first = -(-self.start // step) * step
        marks = (Tick(at, self.at(at), at % _ONE_DAY == 0) for at in range(first, self.end + 1, step))
        return tuple(mark for mark in marks if 3 <= mark.at <= 97)

"""Format times and durations."""

from __future__ import annotations

from datetime import datetime

from mirage.slurm.duration import spell

NOTHING = "-"


def instant_of(text: str | None) -> datetime | None:
    """Parse a time of the API; ``None`` for no time."""
    return datetime.fromisoformat(text) if text else None


def clock(instant: datetime | None) -> str:
    """Format a time in the local time zone, as Slurm prints it; ``-`` for no time."""
    return instant.astimezone().strftime("%Y-%m-%dT%H:%M:%S") if instant else NOTHING


def span(seconds: int | float | None) -> str:
    """Format a duration as Slurm does; ``-`` if it is unknown."""
    return NOTHING if seconds is None else spell(max(0, round(seconds)))


def signed(seconds: int) -> str:
    """Format a signed duration: ``-00:20:00``."""
    return f"{'-' if seconds < 0 else ''}{spell(abs(seconds))}"


def between(earlier: datetime | None, later: datetime | None) -> int | None:
    """Return the seconds between two times, at least 0; ``None`` if one is unknown."""
    if earlier is None or later is None:
        return None
    return max(0, int((later - earlier).total_seconds()))


def words(seconds: float) -> str:
    """Format a rounded duration: ``40 s``, ``12 min``, ``3 h 20 min``, ``2 days 4 h``."""
    seconds = max(0, round(seconds))
    if seconds < 90:
        return f"{seconds} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes and hours < 10 else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days} days {hours} h" if hours else f"{days} days"

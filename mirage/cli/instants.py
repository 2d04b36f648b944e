"""Times and durations for readers."""

from __future__ import annotations

from datetime import datetime

from mirage.slurm.duration import spell

NOTHING = "-"


def instant_of(text: str | None) -> datetime | None:
    """As the API writes it; ``None`` where there is none."""
    return datetime.fromisoformat(text) if text else None


def clock(instant: datetime | None) -> str:
    """In the reader's time zone, as Slurm prints it; ``-`` where there is none."""
    return instant.astimezone().strftime("%Y-%m-%dT%H:%M:%S") if instant else NOTHING


def span(seconds: int | float | None) -> str:
    """As Slurm prints durations; ``-`` where it is not known."""
    return NOTHING if seconds is None else spell(max(0, round(seconds)))


def signed(seconds: int) -> str:
    """The same of a difference: ``-00:20:00``."""
    return f"{'-' if seconds < 0 else ''}{spell(abs(seconds))}"


def between(earlier: datetime | None, later: datetime | None) -> int | None:
    """Seconds, never below 0; ``None`` where one of both is not known."""
    if earlier is None or later is None:
        return None
    return max(0, int((later - earlier).total_seconds()))


def words(seconds: float) -> str:
    """About how long: ``40 s``, ``12 min``, ``3 h 20 min``, ``2 days 4 h``."""
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

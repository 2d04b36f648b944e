"""Formats times and durations."""

from __future__ import annotations

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

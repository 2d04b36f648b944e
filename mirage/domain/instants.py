"""Instants in words."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mirage.domain.job import Seconds

_LAST = 253_402_300_799  # the end of the year 9999


def spell_instant(seconds: Seconds) -> str:
    """Epoch seconds as RFC 3339 has them in UTC, ``2026-11-21T14:36:00Z``; beyond the calendar the bare number."""
    if not 0 <= seconds <= _LAST:
        return str(seconds)
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

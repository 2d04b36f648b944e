"""Times in words."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from mirage.domain.bounds import LATEST
from mirage.domain.errors import BadSpelling

if TYPE_CHECKING:
    from mirage.domain.job import Seconds

_LAST = 253_402_300_799  # the end of the year 9999
_MOST_DIGITS = 18


def spell_instant(seconds: Seconds) -> str:
    """Epoch seconds as RFC 3339 has them in UTC, ``2026-11-21T14:36:00Z``; beyond the calendar the bare number."""
    if not 0 <= seconds <= _LAST:
        return str(seconds)
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def read_instant(text: str) -> Seconds:
    """Epoch seconds of a date, a date and time (UTC unless it says otherwise), or of epoch seconds.

    Raises ``BadSpelling`` for anything else, and for times before 1970 or after 2106.
    """
    if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS:
        seconds = int(text)
    else:
        try:
            instant = datetime.fromisoformat(text)
            seconds = int((instant if instant.tzinfo else instant.replace(tzinfo=UTC)).timestamp())
        except ValueError:
            problem = "expected a date such as 2023-02-01 or 2023-02-01T12:00, or epoch seconds"
            raise BadSpelling(text, problem) from None
    if not 0 <= seconds <= LATEST:
        raise BadSpelling(text, f"expected a time from 1970 to {spell_instant(LATEST)}")
    return seconds

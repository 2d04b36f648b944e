"""Log lines that a user can cause repeatedly: one an hour for each cause."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_HOUR = 3_600.0
_MOST = 10_000
"""Causes that are remembered; with more of them all are forgotten."""


class Seldom:
    """Says whether a line may be written now. For one thread."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._last: dict[tuple[str, str], float] = {}

    def allows(self, event: str, key: str) -> bool:
        """Return whether this event of this key was not reported within the last hour, and note it as reported."""
        now, last = self._now(), self._last.get((event, key))
        if last is not None and now - last < _HOUR:
            return False
        if len(self._last) >= _MOST:
            self._last = {}
        self._last[event, key] = now
        return True

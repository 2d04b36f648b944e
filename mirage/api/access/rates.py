"""Rate limits: a token bucket per caller, refilled at a constant rate."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from mirage.domain.errors import MirageError

if TYPE_CHECKING:
    from collections.abc import Callable

_MOST = 10_000
"""Callers, or addresses, with a stored bucket; beyond, the fullest buckets are dropped."""


class TooOften(MirageError):
    """The caller exceeds its rate limit; it may retry after ``wait`` seconds."""

    def __init__(self, wait: int, text: str = "") -> None:
        super().__init__(text or f"too many requests; retry in {wait} s, and send requests less often")
        self.wait = wait


class Rates:
    """A bucket per caller. For one thread."""

    def __init__(self, rate: float, burst: int, now: Callable[[], float] = time.monotonic) -> None:
        """``rate``: requests per second, 0: unlimited; ``burst``: size of a bucket."""
        self._rate, self._burst, self._now = rate, burst, now
        self._levels: dict[str, tuple[float, float]] = {}

    def take(self, caller: str) -> None:
        """Count one request. Raises ``TooOften``."""
        self.check(caller)
        self.charge(caller, 1)

    def check(self, caller: str) -> None:
        """Raise ``TooOften`` if one more request would exceed the limit."""
        if self._rate and (level := self._level(caller)[0]) < 1:
            raise TooOften(max(1, math.ceil((1 - level) / self._rate)))

    def charge(self, caller: str, cost: float) -> None:
        """Count the additional cost of a request, in requests, once it is known; later requests wait for it."""
        if self._rate:
            level, now = self._level(caller)
            self._levels[caller] = (level - cost, now)

    def _level(self, caller: str) -> tuple[float, float]:
        now = self._now()
        if caller not in self._levels and len(self._levels) >= _MOST:
            self._forget(now)
        level, then = self._levels.get(caller, (float(self._burst), now))
        return min(float(self._burst), level + (now - then) * self._rate), now

    def _forget(self, now: float) -> None:
        """Drop the fuller half: callers with the most requests stay bounded, whatever the number of others."""
        by_level = sorted(self._levels.items(), key=lambda held: held[1][0] + (now - held[1][1]) * self._rate)
        self._levels = dict(by_level[: _MOST // 2])

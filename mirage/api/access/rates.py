"""How often one caller may ask: a bucket each, that fills again at a steady rate."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from mirage.domain.errors import MirageError

if TYPE_CHECKING:
    from collections.abc import Callable

_MOST = 10_000
"""Callers, or addresses, that are remembered; beyond, those whose buckets are fullest are forgotten."""


class TooOften(MirageError):
    """The caller asks too often; ``wait`` seconds later it may ask again."""

    def __init__(self, wait: int, text: str = "") -> None:
        super().__init__(text or f"too many requests; ask again in {wait} s, and less often")
        self.wait = wait


class Rates:
    """One bucket a caller. For one thread."""

    def __init__(self, rate: float, burst: int, now: Callable[[], float] = time.monotonic) -> None:
        """``rate`` requests a second, ``burst`` at once; a rate of 0 bounds nothing."""
        self._rate, self._burst, self._now = rate, burst, now
        self._levels: dict[str, tuple[float, float]] = {}

    def take(self, caller: str) -> None:
        """One request. Raises ``TooOften``."""
        self.check(caller)
        self.charge(caller, 1)

    def check(self, caller: str) -> None:
        """Raises ``TooOften`` where one request more would be too many."""
        if self._rate and (level := self._level(caller)[0]) < 1:
            raise TooOften(max(1, math.ceil((1 - level) / self._rate)))

    def charge(self, caller: str, cost: float) -> None:
        """Count what a request cost beyond itself, once that is known: the next requests wait for it."""
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
        """The fuller half: those who ask most stay bounded, however many others come."""
        by_level = sorted(self._levels.items(), key=lambda held: held[1][0] + (now - held[1][1]) * self._rate)
        self._levels = dict(by_level[: _MOST // 2])

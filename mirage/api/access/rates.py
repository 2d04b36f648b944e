"""How often one caller may ask: a bucket each, that fills again at a steady rate."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from mirage.domain.errors import MirageError

if TYPE_CHECKING:
    from collections.abc import Callable

_MOST = 10_000


class TooOften(MirageError):
    """The caller asks too often; ``wait`` seconds later it may ask again."""

    def __init__(self, wait: int) -> None:
        super().__init__(f"too many requests; ask again in {wait} s, and less often")
        self.wait = wait


class Rates:
    """One bucket a caller. For the server's thread only."""

    def __init__(self, rate: float, burst: int, now: Callable[[], float] = time.monotonic) -> None:
        """``rate`` requests a second, ``burst`` at once; a rate of 0 bounds nothing."""
        self._rate, self._burst, self._now = rate, burst, now
        self._levels: dict[str, tuple[float, float]] = {}

    def take(self, caller: str) -> None:
        """One request. Raises ``TooOften``."""
        if not self._rate:
            return
        level, now = self._level(caller)
        if level < 1:
            raise TooOften(max(1, math.ceil((1 - level) / self._rate)))
        self._levels[caller] = (level - 1, now)

    def _level(self, caller: str) -> tuple[float, float]:
        now = self._now()
        if len(self._levels) > _MOST:
            self._forget(now)
        level, then = self._levels.get(caller, (float(self._burst), now))
        return min(float(self._burst), level + (now - then) * self._rate), now

    def _forget(self, now: float) -> None:
        """Buckets that are full again are as good as none; where most are not, all go."""
        empty = {k: v for k, v in self._levels.items() if v[0] + (now - v[1]) * self._rate < self._burst}
        self._levels = empty if len(empty) < _MOST // 2 else {}

"""How often each user's commands may bring on a cycle: every cycle costs Slurm queries."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

MOST = 60
"""Cycles that one user's commands bring on without a pause: a script that submits many chains does not wait."""


class WakeBudget:
    """One bucket per user. For the loop's thread only."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self.every = 10.0
        """Real seconds after which a user whose bucket is empty may bring on another cycle."""
        self._now = now
        self._levels: dict[str, tuple[float, float]] = {}
        """Of buckets that are not full: the level, and when it was that."""

    def delay(self, users: Collection[str]) -> float:
        """Return the seconds until a command of one of ``users`` may start a cycle; infinite without users."""
        levels = [self._level(user) for user in users]
        return max(0.0, 1 - max(levels)) * self.every if levels else math.inf

    def take(self, users: Collection[str]) -> frozenset[str]:
        """Charge each of ``users`` who may bring on a cycle now, and return them."""
        found = frozenset(user for user in users if self._level(user) >= 1)
        now = self._now()
        for user in found:
            self._levels[user] = self._level(user) - 1, now
        self._levels = {user: held for user, held in self._levels.items() if self._level(user) < MOST}
        return found

    def _level(self, user: str) -> float:
        now = self._now()
        level, then = self._levels.get(user, (float(MOST), now))
        return min(float(MOST), level + (now - then) / self.every)

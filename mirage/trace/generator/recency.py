"""Finds whom to come back to: what was last used at about a given time."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

NEIGHBOURS = 40
"""Keys tried before none is taken to be free."""


class Recency:
    """Keys in the order of their last use, to find the one last used at about a given time."""

    def __init__(self) -> None:
        self._times: list[float] = []
        self._keys: list[int] = []
        self._last: dict[int, float] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def touch(self, key: int, now: float) -> None:
        """Note a use; ``now`` is not before any earlier use."""
        before = self._last.get(key)
        if before is not None:
            place = bisect_left(self._times, before)
            while self._keys[place] != key:
                place += 1
            del self._times[place], self._keys[place]
        self._times.append(now)
        self._keys.append(key)
        self._last[key] = now

    def used_at(self, instant: float, free: Callable[[int], bool]) -> int | None:
        """The key last used nearest to ``instant`` of those that are ``free``; ``None`` if none near is."""
        high = bisect_right(self._times, instant)
        low = high - 1
        for _ in range(NEIGHBOURS):
            newer = self._times[high] - instant if high < len(self._times) else math.inf
            older = instant - self._times[low] if low >= 0 else math.inf
            if newer == older:
                return None
            place = high if newer < older else low
            if free(self._keys[place]):
                return self._keys[place]
            high, low = (high + 1, low) if newer < older else (high, low - 1)
        return None

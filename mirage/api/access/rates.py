"""Rate limits: a token bucket per caller, refilled at a constant rate; busy callers wait during a cycle.

The decision loop and the server share one interpreter, so the requests of busy callers give way to a cycle.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import defaultdict
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from mirage.domain.errors import MirageError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

_MOST = 10_000
"""Callers, or addresses, with a stored bucket; beyond, the fullest buckets are dropped."""


class TooOften(MirageError):
    """The caller exceeds its rate limit; it may retry after ``wait`` seconds."""

    def __init__(self, wait: int, text: str = "") -> None:
        super().__init__(text or f"too many requests; retry in {wait} s, and send requests less often")
        self.wait = wait


class RateLimiter:
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


LIGHT_RATE, LIGHT_BURST = 5.0, 50
"""Rate per second, and burst, of a caller who never waits."""
LONGEST_WAIT = 2.0
"""Longest wait of a request, in seconds; a longer cycle is itself waiting for Slurm or a predictor."""
_POLL = 0.01


class RightOfWay:
    """Gives the decision loop priority over requests. For the server's event loop only.

    Python runs one thread at a time, so a user who sends requests without pause would double the time of each
    cycle.
    """

    def __init__(
        self, in_cycle: Callable[[], bool], light: RateLimiter | None = None, longest: float = LONGEST_WAIT
    ) -> None:
        """``in_cycle``: returns whether the loop is in a cycle, without waiting."""
        self._longest = longest
        self._in_cycle = in_cycle
        self._light = light or RateLimiter(LIGHT_RATE, LIGHT_BURST)
        self._end: asyncio.Task[None] | None = None
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._waiting: defaultdict[str, int] = defaultdict(int)

    async def give(self, caller: str) -> None:
        """Wait for the end of a running cycle if this caller sends many requests."""
        try:
            self._light.take(caller)
        except TooOften:
            if self._in_cycle():
                await self._cycle_end()

    @asynccontextmanager
    async def alone(self, caller: str) -> AsyncIterator[None]:
        """Hold for CPU-bound work: one at a time per caller, and none during a cycle."""
        self._waiting[caller] += 1
        try:
            async with self._turns[caller]:
                if self._in_cycle():
                    await self._cycle_end()
                yield
        finally:
            self._waiting[caller] -= 1
            if not self._waiting[caller]:
                del self._waiting[caller], self._turns[caller]

    async def _cycle_end(self) -> None:
        """All waiting requests share one task."""
        if self._end is None or self._end.done():
            self._end = asyncio.ensure_future(self._poll())
        await asyncio.shield(self._end)

    async def _poll(self) -> None:
        for _ in range(round(self._longest / _POLL)):
            if not self._in_cycle():
                return
            await asyncio.sleep(_POLL)

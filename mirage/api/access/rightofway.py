"""Requests of busy callers wait during a cycle of the loop: both share one interpreter."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from mirage.api.access.rates import Rates, TooOften

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

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
        self, in_cycle: Callable[[], bool], light: Rates | None = None, longest: float = LONGEST_WAIT
    ) -> None:
        """``in_cycle``: returns whether the loop is in a cycle, without waiting."""
        self._longest = longest
        self._in_cycle = in_cycle
        self._light = light or Rates(LIGHT_RATE, LIGHT_BURST)
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

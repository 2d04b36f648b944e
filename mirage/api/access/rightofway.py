"""Requests of busy callers wait while the loop is in a cycle: both share one interpreter."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from mirage.api.access.rates import Rates, TooOften

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

LIGHT_RATE, LIGHT_BURST = 5.0, 50
"""Requests per second, and at once, of a caller who never waits."""
LONGEST_WAIT = 2.0
"""Seconds that a request waits at most; a cycle that takes longer waits for Slurm or a predictor itself."""
_POLL = 0.01


class RightOfWay:
    """The loop goes first. For the server's event loop only.

    Threads of Python run one at a time, so a user who asks without pause would double the time of every cycle.
    """

    def __init__(
        self, in_cycle: Callable[[], bool], light: Rates | None = None, longest: float = LONGEST_WAIT
    ) -> None:
        """``in_cycle``: whether the loop is in a cycle; waits for nothing."""
        self._longest = longest
        self._in_cycle = in_cycle
        self._light = light or Rates(LIGHT_RATE, LIGHT_BURST)
        self._end: asyncio.Task[None] | None = None
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._waiting: defaultdict[str, int] = defaultdict(int)

    async def give(self, caller: str) -> None:
        """Let a cycle end that is in progress, where this caller asks much."""
        try:
            self._light.take(caller)
        except TooOften:
            if self._in_cycle():
                await self._cycle_end()

    @asynccontextmanager
    async def alone(self, caller: str) -> AsyncIterator[None]:
        """For work that keeps the interpreter busy: one piece of it per caller, and none while a cycle runs."""
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
        """All who wait share one task, however many they are."""
        if self._end is None or self._end.done():
            self._end = asyncio.ensure_future(self._poll())
        await asyncio.shield(self._end)

    async def _poll(self) -> None:
        for _ in range(round(self._longest / _POLL)):
            if not self._in_cycle():
                return
            await asyncio.sleep(_POLL)

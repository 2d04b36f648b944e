"""Pace of the answers that count against no client's rate limit: rejections, health, static files.

Such an answer costs about as much time as any other. It waits until it is due; the next request of its connection
is not begun before, so that a client that floods takes a small share of the event loop. An answer within the pace
goes out immediately.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from mirage.boundedhttp import PRESENCE, Presence

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping
    from typing import Any

_MOST_CLIENTS = 10_000
"""Clients that are remembered; beyond, those are forgotten whose answers are due soonest."""


class AnswerPace:
    """When the next answer to each client is due. For one event loop."""

    def __init__(self, rate: float, burst: int, longest: float, now: Callable[[], float] = time.monotonic) -> None:
        """``rate`` answers per second, bursts of ``burst``; no answer waits for more than ``longest`` seconds."""
        self._step, self._ahead, self._longest, self._now = 1 / rate, burst / rate, longest, now
        self._full: dict[str, float] = {}
        """When each client may have a whole burst again."""

    def delay(self, client: str) -> float:
        """Count an answer to ``client``; the seconds until it is due."""
        now = self._now()
        if client not in self._full and len(self._full) >= _MOST_CLIENTS:
            self._forget()
        full = max(self._full.get(client, now), now) + self._step
        self._full[client] = full = min(full, now + self._ahead + self._longest)
        return max(0.0, full - now - self._ahead)

    async def hold(self, client: str, scope: MutableMapping[str, Any]) -> None:
        """Count the answer to the request of ``scope``; return when it is due, or its client has left."""
        delay, presence = self.delay(client), scope.get(PRESENCE)
        if not delay:
            return
        await _wait(delay, presence if isinstance(presence, Presence) else Presence())

    def _forget(self) -> None:
        by_time = sorted(self._full.items(), key=lambda known: known[1])
        self._full = dict(by_time[_MOST_CLIENTS // 2 :])


async def _wait(delay: float, presence: Presence) -> None:
    loop = asyncio.get_running_loop()
    due = loop.create_future()

    def end() -> None:
        if not due.done():
            due.set_result(None)

    timer = loop.call_later(delay, end)
    presence.hold()
    presence.watch(end)
    try:
        await due
    finally:
        timer.cancel()
        presence.unwatch(end)
        presence.held = False

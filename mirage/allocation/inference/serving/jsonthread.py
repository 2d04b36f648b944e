"""Read and write large JSON documents in one thread outside the event loop, tenant by tenant."""

from __future__ import annotations

import asyncio
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

T = TypeVar("T")


class JsonThread:
    """One document at a time, so that only one is held as objects; owners take turns."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "json")
        self._lines: dict[Hashable, deque[asyncio.Future[None]]] = {}
        """Waiting work by owner; an owner that had a turn goes to the end."""
        self._busy = False

    async def run(self, owner: Hashable, work: Callable[[], T]) -> T:
        """Run ``work`` and return its result or raise its exception."""
        await self._turn(owner)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        finally:
            self._pass_on()

    def close(self) -> None:
        """Start no more work."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _turn(self, owner: Hashable) -> None:
        if not self._busy:
            self._busy = True
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._lines.setdefault(owner, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        while self._lines:
            owner = next(iter(self._lines))
            line = self._lines.pop(owner)
            while line and line[0].done():  # its client has disconnected
                line.popleft()
            if line:
                line.popleft().set_result(None)
                if line:
                    self._lines[owner] = line
                return
        self._busy = False

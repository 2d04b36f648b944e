"""Large bodies take turns: one per user at a time, and a bounded number of bytes in all.

All connections may send a body at the same time. Together these would take gigabytes, and as much again for
parsing.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from starlette.exceptions import HTTPException

MOST_WAITING = 8
"""Waiting bodies per user; a further one is rejected."""
PATIENCE = 10.0
"""Timeout of a waiting body, in seconds."""
_RETRY = 5


@dataclass(eq=False, slots=True)
class _Place:
    """A body that waits or has its turn."""

    user: str
    size: int
    ready: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class LargeBodies:
    """Turns of large bodies. For the server's event loop only."""

    def __init__(self, most: int) -> None:
        """``most``: bytes of all bodies with a turn."""
        self._most = most
        self._line: list[_Place] = []
        self._held: dict[str, int] = {}

    async def take(self, user: str, size: int) -> None:
        """Wait for the turn of a body of up to ``size`` bytes. Raises ``HTTPException`` (429)."""
        if sum(other.user == user for other in self._line) >= MOST_WAITING:
            raise self._too_many(user)
        place = _Place(user, size)
        self._line.append(place)
        self._advance()
        try:
            async with asyncio.timeout(PATIENCE):
                await place.ready
        except BaseException as error:
            self._leave(place)
            if isinstance(error, TimeoutError):
                raise self._too_many(user) from None
            raise

    def give_back(self, user: str) -> None:
        """End the turn of this user's body."""
        del self._held[user]
        self._advance()

    def _leave(self, place: _Place) -> None:
        if place in self._line:
            self._line.remove(place)
            self._advance()
        elif not place.ready.cancelled():
            self.give_back(place.user)

    def _advance(self) -> None:
        """Give turns in order. A body without room is not overtaken, otherwise it might never get room."""
        for place in tuple(self._line):
            if place.user in self._held:
                continue
            if self._held and sum(self._held.values()) + place.size > self._most:
                return
            self._line.remove(place)
            if not place.ready.done():
                self._held[place.user] = place.size
                place.ready.set_result(None)

    def _too_many(self, user: str) -> HTTPException:
        whose = f"of {user}" if user in self._held else "of other users"
        text = f"too many large bodies {whose} in progress; send it again in {_RETRY} s"
        return HTTPException(429, text, {"Retry-After": str(_RETRY)})

"""Large bodies take turns: one of each user at a time, and of all of them only so many bytes.

Every connection may bring a body at once. What holds them all would hold gigabytes, and as much again while they
are parsed.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from starlette.exceptions import HTTPException

MOST_WAITING = 8
"""Bodies of one user that wait for their turn; the next one is sent away."""
PATIENCE = 10.0
"""Seconds that one waits."""
_RETRY = 5


@dataclass(eq=False, slots=True)
class _Place:
    """One body that waits, or has its turn."""

    user: str
    size: int
    ready: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class LargeBodies:
    """Whose turn it is. For the server's event loop only."""

    def __init__(self, most: int) -> None:
        """``most``: bytes of all bodies that have their turn."""
        self._most = most
        self._line: list[_Place] = []
        self._held: dict[str, int] = {}

    async def take(self, user: str, size: int) -> None:
        """Wait for the turn of a body of ``size`` bytes at most. Raises ``HTTPException`` (429)."""
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
        """The turn of this user's body is over."""
        del self._held[user]
        self._advance()

    def _leave(self, place: _Place) -> None:
        if place in self._line:
            self._line.remove(place)
            self._advance()
        elif not place.ready.cancelled():
            self.give_back(place.user)

    def _advance(self) -> None:
        """Let in who is next; a body that finds no room is passed by none that needs room, or it never had any."""
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
        text = f"large bodies take turns, and those {whose} are not done; send it again in {_RETRY} s"
        return HTTPException(429, text, {"Retry-After": str(_RETRY)})

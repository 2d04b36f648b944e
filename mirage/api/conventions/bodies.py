"""Bounds of size and duration of request bodies; large ones take turns.

All connections may send a body at the same time. Together these would take gigabytes, and as much again for
parsing. So each user has one turn at a time, and all bodies together have a bounded number of bytes.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request

from mirage.api.access.dependencies import origin_of
from mirage.api.conventions.problems import refused
from mirage.backends.agent_requests import LONGEST_ANSWER
from mirage.boundedhttp import LARGEST_DISCARDED

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

MOST_WAITING = 8
"""Waiting bodies per user; a further one is rejected."""
PATIENCE = 10.0
"""Timeout of a waiting body, in seconds."""
_RETRY = 5


@dataclass(eq=False, slots=True)
class _BodyTurn:
    """A body that waits or has its turn."""

    user: str
    size: int
    ready: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class LargeBodies:
    """Turns of large bodies. For the server's event loop only."""

    def __init__(self, most: int) -> None:
        """``most``: bytes of all bodies with a turn."""
        self._most = most
        self._line: list[_BodyTurn] = []
        self._held: dict[str, int] = {}

    async def take(self, user: str, size: int) -> None:
        """Wait for the turn of a body of up to ``size`` bytes. Raises ``HTTPException`` (429)."""
        if sum(other.user == user for other in self._line) >= MOST_WAITING:
            raise self._too_many(user)
        place = _BodyTurn(user, size)
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

    def _leave(self, place: _BodyTurn) -> None:
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


_JSON = "application/json"
LARGEST = 8 << 20
"""Bytes of a chain's document with script and environment."""
SMALL = 64 << 10
"""Bytes of a body that is read without a turn."""
SHORT = 16 << 10
"""Bytes of any other body, read in the event loop at 10 ms per 64 KiB."""
WITHIN = 30.0
"""Timeout in seconds from the first byte of a body to its last."""
GRACE = 5.0
"""Seconds after which a body must arrive at ``SLOWEST`` or faster, and a small one must be complete."""
SLOWEST = 128 << 10
"""Bytes per second."""
_MOST_OF_CHAINS = 4 * LARGEST
_MOST_OF_ANSWERS = 8 * LONGEST_ANSWER


class Bounds:
    """Middleware that rejects bodies that are too large or too slow."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        # Separate turns for each kind: a chain's document may have to wait for an agent's response.
        self._kinds = (
            (re.compile(r"/api/v1/chains/?"), LARGEST, LargeBodies(_MOST_OF_CHAINS)),
            (re.compile(r"/api/v1/agent/orders/[^/]+/answer/?"), LONGEST_ANSWER, LargeBodies(_MOST_OF_ANSWERS)),
        )
        self._others = LargeBodies(SMALL)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the body on while it is within the bounds."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif not _is_json(scope):
            error = HTTPException(415, "unsupported media type; send the document as application/json")
            await (await refused(Request(scope), error))(scope, receive, send)
        else:
            bounded = _Bounded(scope, receive, *self._kind(scope["path"]))
            try:
                await self._app(scope, bounded.receive, send)
            finally:
                bounded.close()

    def _kind(self, path: str) -> tuple[int, LargeBodies]:
        found = ((largest, turns) for pattern, largest, turns in self._kinds if pattern.fullmatch(path))
        return next(found, (SHORT, self._others))


def _is_json(scope: Scope) -> bool:
    """Whether the content type of an API request is JSON or missing."""
    if scope["method"] in ("GET", "HEAD", "OPTIONS") or not scope["path"].startswith("/api/"):
        return True
    kind = Headers(scope=scope).get("content-type", _JSON).partition(";")[0].strip().lower()
    return kind == _JSON or (kind.startswith("application/") and kind.endswith("+json"))


class _Bounded:
    """One body. Raises ``HTTPException``: 413, 408, 429."""

    def __init__(self, scope: Scope, receive: Receive, largest: int, turns: LargeBodies) -> None:
        self._scope, self._receive, self._largest, self._turns = scope, receive, largest, turns
        self._size = 0
        self._began: float | None = None
        self._complete = False
        self._turn = ""
        """User whose turn was taken."""

    async def receive(self) -> Message:
        """Return the next part; after the last part any later message."""
        if self._complete:
            return await self._receive()
        if self._began is None:
            await self._begin()
        message = await self._part()
        while self._is_too_large and message.get("more_body", False) and not self._is_given_up:
            message = await self._part()
        if self._is_too_large:
            raise HTTPException(413, f"the body is longer than {self._largest} bytes")
        if self._size > SMALL and not self._turn:  # without Content-Length
            await self._take_turn(self._largest)
        self._complete = not message.get("more_body", False)
        return message

    def close(self) -> None:
        """Give the turn back once the response is sent and the body released."""
        if self._turn:
            self._turns.give_back(self._turn)

    @property
    def _is_too_large(self) -> bool:
        return self._size > self._largest

    @property
    def _is_given_up(self) -> bool:
        return self._size >= self._largest + LARGEST_DISCARDED

    async def _begin(self) -> None:
        self._began = asyncio.get_running_loop().time()
        length = Headers(scope=self._scope).get("content-length", "")
        if length.isdecimal() and SMALL < int(length[:20]) <= self._largest:
            await self._take_turn(int(length))

    async def _take_turn(self, size: int) -> None:
        """The caller is known by now: routes with large bodies authenticate first."""
        began = asyncio.get_running_loop().time()
        user = origin_of(self._scope)
        await self._turns.take(user, size)
        self._turn = user
        self._began = (self._began or 0.0) + asyncio.get_running_loop().time() - began

    async def _part(self) -> Message:
        try:
            async with asyncio.timeout_at((self._began or 0.0) + min(WITHIN, GRACE + self._size / SLOWEST)):
                message = await self._receive()
        except TimeoutError:
            raise HTTPException(408, "the body did not arrive in time; send it again") from None
        self._size += len(message.get("body", b""))
        return message

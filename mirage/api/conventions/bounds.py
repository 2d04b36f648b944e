"""Bounds of size and duration of request bodies."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request

from mirage.api.access.dependencies import origin_of
from mirage.api.conventions.largebodies import LargeBodies
from mirage.api.conventions.problems import refused
from mirage.backends.acting.orders import LONGEST_ANSWER
from mirage.boundedhttp import LARGEST_DISCARDED

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

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

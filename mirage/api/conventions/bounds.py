"""How large a request may be, and how long it may take to arrive."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException

from mirage.api.conventions.problems import answer_to

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_JSON = "application/json"
LARGEST = 8 << 20
"""Bytes of a body: a chain's document, that is a script and an environment, with room to spare."""
WITHIN = 30.0
"""Seconds from the first byte of a body to its last."""


class Bounds:
    """Breaks off what is too large or too slow."""

    def __init__(self, app: ASGIApp, largest: int = LARGEST, within: float = WITHIN) -> None:
        self._app, self._largest, self._within = app, largest, within

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the body on as long as it keeps within the bounds."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif not _is_json(scope):
            await answer_to(HTTPException(415, "a document is sent as application/json"))(scope, receive, send)
        else:
            await self._app(scope, _Bounded(receive, self._largest, self._within).receive, send)


def _is_json(scope: Scope) -> bool:
    """Whether what is sent to the interface is what it takes, or says nothing of itself."""
    if scope["method"] in ("GET", "HEAD", "OPTIONS") or not scope["path"].startswith("/api/"):
        return True
    kind = Headers(scope=scope).get("content-type", _JSON).partition(";")[0].strip().lower()
    return kind == _JSON or (kind.startswith("application/") and kind.endswith("+json"))


class _Bounded:
    """One body. Raises ``HTTPException``: 413, 408."""

    def __init__(self, receive: Receive, largest: int, within: float) -> None:
        self._receive, self._left, self._largest, self._within = receive, largest, largest, within
        self._end: float | None = None
        self._complete = False

    async def receive(self) -> Message:
        """The next part; once all of them are here whatever comes, however late."""
        if self._complete:
            return await self._receive()
        if self._end is None:
            self._end = asyncio.get_running_loop().time() + self._within
        try:
            async with asyncio.timeout_at(self._end):
                message = await self._receive()
        except TimeoutError:
            raise HTTPException(408, f"the body was not here within {self._within:g} s") from None
        self._left -= len(message.get("body", b""))
        if self._left < 0:
            raise HTTPException(413, f"the body is longer than {self._largest} bytes")
        self._complete = not message.get("more_body", False)
        return message

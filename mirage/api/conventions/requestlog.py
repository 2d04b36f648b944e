"""Request log, by request ID."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from mirage.api.access.dependencies import known_caller, origin_of
from mirage.api.conventions.faults import LONGEST_PATH, REQUEST_ID

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_LOG = logging.getLogger("mirage.requests")
_LOOKS = frozenset({"GET", "HEAD", "OPTIONS"})


class RequestLog:
    """Middleware inside ``Faults``, which assigns the ID. Successful reads are logged at level debug."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the request, and log its result."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status, began = 500, time.monotonic()

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, noted)
        finally:
            _log(scope, status, time.monotonic() - began)


def _log(scope: Scope, status: int, seconds: float) -> None:
    level = _level(scope["method"], status)
    if not _LOG.isEnabledFor(level):
        return
    caller = known_caller(scope)
    fields = {
        "kind": "request",
        "request": scope.get(REQUEST_ID, ""),
        "caller": caller.name if caller is not None else "",
        "status": status,
        "ms": round(1_000 * seconds, 1),
    }
    extra: dict[str, object] = {"fields": fields, "alike": _alike(scope, status)}
    # The query is left out: it may contain secrets.
    _LOG.log(level, "%s %s", scope["method"], scope["path"][:LONGEST_PATH], extra=extra)


def _alike(scope: Scope, status: int) -> str:
    """Key of the log's rate limit; without names in the path, which the caller can choose."""
    if status >= 400:
        return f"rejected {origin_of(scope)} {status >= 500}"
    return f"{scope['method']} {getattr(scope.get('route'), 'path', '')} of {origin_of(scope)}"


def _level(method: str, status: int) -> int:
    if status >= 500:
        return logging.WARNING
    return logging.DEBUG if method in _LOOKS and status < 400 else logging.INFO

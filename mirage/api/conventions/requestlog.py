"""Outermost layers: request IDs, security headers, no stack traces in responses, and the request log."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from http import HTTPStatus
from itertools import count
from typing import TYPE_CHECKING

from starlette.requests import ClientDisconnect

from mirage.api.access.dependencies import known_caller, origin_of
from mirage.api.conventions.problems import problem

if TYPE_CHECKING:
    from collections.abc import Iterable

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_LOG = logging.getLogger(__name__)

LONGEST_PATH = 200
"""Characters of a path in a log line."""
_ENDS = "the daemon is stopping; retry after its restart"
_AGAIN = {"Retry-After": "5"}
REQUEST_ID = "mirage.request_id"
"""Key of the request ID in a request's scope; also in the header ``X-Request-ID`` and in the log."""


class ErrorMiddleware:
    """Outermost middleware."""

    def __init__(self, app: ASGIApp, frame_ancestors: tuple[str, ...] = ()) -> None:
        self._app = app
        framing = " ".join(("'self'", *frame_ancestors)) if frame_ancestors else "'none'"
        headers = {
            "content-security-policy": (
                "default-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'self'; "
                f"object-src 'none'; frame-ancestors {framing}"
            ),
            "x-content-type-options": "nosniff",
            "referrer-policy": "no-referrer",
            "cross-origin-opener-policy": "same-origin",
            "cross-origin-resource-policy": "same-origin",
            "cache-control": "no-cache, private",
        }
        if not frame_ancestors:
            headers["x-frame-options"] = "DENY"
        self._headers = [(name.encode(), value.encode()) for name, value in headers.items()]
        self._process, self._numbers = secrets.token_hex(4), count(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send a response in any case."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        number = scope[REQUEST_ID] = f"{self._process}{next(self._numbers):08x}"
        begun = False

        async def careful(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                message = {**message, "headers": self._added(message["headers"], number)}
            await send(message)

        try:
            await self._app(scope, receive, careful)
        except asyncio.CancelledError:  # only a stopping server cancels requests
            _LOG.debug("event=request_interrupted request=%s reason='daemon is stopping'", number)
            if not begun:
                await problem(HTTPStatus.SERVICE_UNAVAILABLE, _ENDS, _AGAIN)(scope, receive, careful)
        except ClientDisconnect:
            _LOG.debug("event=client_left request=%s", number)
        except Exception:
            text = "event=request_failed request=%s method=%s path=%r"
            _LOG.exception(text, number, scope["method"], scope["path"][:LONGEST_PATH])
            if begun:
                raise
            text = f"internal error (bug in Mirage); the daemon's log has the traceback of request {number}"
            await problem(HTTPStatus.INTERNAL_SERVER_ERROR, text)(scope, receive, careful)

    def _added(self, headers: Iterable[tuple[bytes, bytes]], number: str) -> list[tuple[bytes, bytes]]:
        """Add the request ID, and security headers that are missing; header names are lower case in ASGI."""
        given = list(headers)
        names = {name for name, _ in given}
        return [
            *given,
            (b"x-request-id", number.encode()),
            *(pair for pair in self._headers if pair[0] not in names),
        ]


_REQUEST_LOG = logging.getLogger("mirage.requests")
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
    if not _REQUEST_LOG.isEnabledFor(level):
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
    _REQUEST_LOG.log(level, "%s %s", scope["method"], scope["path"][:LONGEST_PATH], extra=extra)


def _alike(scope: Scope, status: int) -> str:
    """Key of the log's rate limit; without names in the path, which the caller can choose."""
    if status >= 400:
        return f"rejected {origin_of(scope)} {status >= 500}"
    return f"{scope['method']} {getattr(scope.get('route'), 'path', '')} of {origin_of(scope)}"


def _level(method: str, status: int) -> int:
    if status >= 500:
        return logging.WARNING
    return logging.DEBUG if method in _LOOKS and status < 400 else logging.INFO

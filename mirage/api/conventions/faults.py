"""Around everything: a number for each request, headers that keep browsers careful, and no stack trace outside."""

from __future__ import annotations

import logging
import secrets
from http import HTTPStatus
from typing import TYPE_CHECKING

from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect

from mirage.api.conventions.problems import problem

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_LOG = logging.getLogger(__name__)

REQUEST_ID = "mirage.request_id"
"""Where a request's scope has its number, which the header ``X-Request-ID`` tells and log lines name."""


class Faults:
    """The outermost layer."""

    def __init__(self, app: ASGIApp, frame_ancestors: tuple[str, ...] = ()) -> None:
        self._app = app
        framing = " ".join(("'self'", *frame_ancestors)) if frame_ancestors else "'none'"
        self._headers = {
            "Content-Security-Policy": (
                "default-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'self'; "
                f"object-src 'none'; frame-ancestors {framing}"
            ),
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Opener-Policy": "same-origin",
            "Cross-Origin-Resource-Policy": "same-origin",
        }
        if not frame_ancestors:
            self._headers["X-Frame-Options"] = "DENY"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer whatever happens."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        number = scope[REQUEST_ID] = secrets.token_hex(8)
        begun = False

        async def careful(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                self._add(MutableHeaders(scope=message), number)
            await send(message)

        try:
            await self._app(scope, receive, careful)
        except ClientDisconnect:
            _LOG.debug("request %s: its client has left", number)
        except Exception:
            _LOG.exception("request %s: %s %s has failed", number, scope["method"], scope["path"])
            if begun:
                raise
            text = f"the daemon has failed to answer; its log says why under {number}"
            await problem(HTTPStatus.INTERNAL_SERVER_ERROR, text)(scope, receive, careful)

    def _add(self, headers: MutableHeaders, number: str) -> None:
        headers["X-Request-ID"] = number
        for name, value in self._headers.items():
            headers.setdefault(name, value)
        headers.setdefault("Cache-Control", "no-cache, private")

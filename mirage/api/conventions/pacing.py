"""Paces responses that count against no rate: rejections, health, metrics, static files."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

from mirage.answerpace import AnswerPace
from mirage.api.access.concurrency import active_request
from mirage.api.access.dependencies import ADMITTED, origin_of
from mirage.api.access.peer import PEER, Peer

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

ANSWERS_A_SECOND, ANSWERS_AT_ONCE = 100, 300
"""Rate per second and burst for a user, or an address before authentication; not for root on the socket."""
_WITHIN = 2.0
"""Longest wait of such a response, in seconds, so that health checks get theirs in time."""
_PACED = "mirage.paced"


class PacingLayer:
    """Middleware around the layers that reject requests. Internal requests of a page do not count."""

    def __init__(self, app: ASGIApp) -> None:
        self._app, self._pace = app, AnswerPace(ANSWERS_A_SECOND, ANSWERS_AT_ONCE, _WITHIN)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the request, and send the response when it is due."""
        peer = scope.get(PEER)
        if scope["type"] != "http" or _PACED in scope or (isinstance(peer, Peer) and peer.is_root):
            await self._app(scope, receive, send)
            return
        scope[_PACED] = True

        async def when_due(message: Message) -> None:
            if message["type"] == "http.response.start" and _is_paced(scope, message["status"]):
                active_request().leave_place()
                await self._pace.hold(origin_of(scope), scope)
            await send(message)

        await self._app(scope, receive, when_due)


def _is_paced(scope: Scope, status: int) -> bool:
    return status == HTTPStatus.TOO_MANY_REQUESTS or ADMITTED not in scope

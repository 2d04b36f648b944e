"""Answers that count against no rate wait until they are due: rejections, health, metrics, static files."""

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
"""To one user, or one address until the user is known; not for root on the socket."""
_WITHIN = 2.0
"""Seconds that such an answer waits at most: checks of health get theirs, whoever else asks from their address."""
_PACED = "mirage.paced"


class PacingLayer:
    """Around those that reject. What a page asks is no request of a client."""

    def __init__(self, app: ASGIApp) -> None:
        self._app, self._pace = app, AnswerPace(ANSWERS_A_SECOND, ANSWERS_AT_ONCE, _WITHIN)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on, and send the answer when it is due."""
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

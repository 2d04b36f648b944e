"""Layers that admit requests: bounded per caller, and no changes on a daemon that is not the leader.

A request whose client has left is cancelled. Responses that count against no rate (rejections, health, metrics,
static files) are paced.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import TYPE_CHECKING

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from mirage.api.access.authentication import brings_proof
from mirage.api.access.concurrency import ActiveRequest, Concurrency, TooManyAtOnce, activate, active_request
from mirage.api.access.dependencies import ADMITTED, REFUSED, origin_of
from mirage.api.access.protocol import PEER, Peer, peer_of
from mirage.api.conventions.problems import answer_to, problem
from mirage.boundedhttp import PRESENCE, AnswerPace, ClientPresence
from mirage.domain.texts import client_network

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from mirage.api.access.authentication import Authenticator

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


_READING = frozenset({"GET", "HEAD", "OPTIONS"})
_CHANGED_HERE = "/api/v1/"
"""Prefix of changes; logging in, elsewhere, changes nothing that daemons share."""
_AGAIN = {"Retry-After": "30"}


class StandingBy:
    """Middleware of a standby: passes reads; rejects changes before their body is read."""

    def __init__(self, app: ASGIApp, impediment: Callable[[], str]) -> None:
        self._app, self._impediment = app, impediment

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond to changes with 503 and the reason while there is an impediment."""
        changes = scope["type"] == "http" and scope["method"] not in _READING
        if changes and scope["path"].startswith(_CHANGED_HERE) and (found := self._impediment()):
            answer = problem(HTTPStatus.SERVICE_UNAVAILABLE, f"this daemon does not act now: {found}", _AGAIN)
            await answer(scope, receive, send)
            return
        await self._app(scope, receive, send)


_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_AT_ONCE = frozenset({"/healthz", "/version"})
"""Answered without a place, as for clients without credentials: they wait for nothing."""
_APART = ("/readyz", "/metrics")
"""Slow endpoints that need no authentication: each has separate places at each address."""
_GONE = 499
_ENTERED = "mirage.entered"


class ConcurrencyLayer:
    """Middleware inside request numbering and logging, around all layers that may wait."""

    def __init__(self, app: ASGIApp, gate: Authenticator) -> None:
        self._app, self._gate, self._concurrency = app, gate, Concurrency()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Give the request a place, or reject it. Internal requests of a page use the place of the page."""
        if scope["type"] != "http" or _ENTERED in scope:
            await self._app(scope, receive, send)
            return
        scope[_ENTERED] = True
        request = Request(scope)
        running = _RunningRequest(scope, receive, send)
        peer = peer_of(request)
        try:
            self._concurrency.enter(running.active, peer.share if peer else "", _stranger(request))
        except TooManyAtOnce as error:
            await self._refuse(request, receive, send, error)
            return
        try:
            await running.run(self._app)
        finally:
            self._concurrency.leave(running.active)

    async def _refuse(self, request: Request, receive: Receive, send: Send, error: TooManyAtOnce) -> None:
        if request.scope["path"] in _AT_ONCE:
            request.scope[REFUSED] = error
            await self._app(request.scope, receive, send)
            return
        self._gate.count_refused(request)
        await answer_to(error)(request.scope, receive, send)


class _RunningRequest:
    """One request in progress, and its client."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._scope, self._receive, self._send = scope, receive, send
        presence = scope.get(PRESENCE)
        self.active = ActiveRequest(
            self._end,
            scope["method"] in _SAFE,
            presence if isinstance(presence, ClientPresence) else ClientPresence(),
        )
        self._task = asyncio.current_task()
        self._has_body = True
        self._begun = self._complete = self._ended = False

    async def run(self, app: ASGIApp) -> None:
        """Run until the response is sent or the client has left."""
        if self.active.presence.left:
            await self._part()
            return
        activate(self.active)
        self.active.presence.watch(self.active.leave)
        try:
            await app(self._scope, self._hear, self._say)
        except asyncio.CancelledError:
            if not self._ended or self._task is None or self._task.uncancel():
                raise
            await self._part()
        except ClientDisconnect:
            await self._part()
        finally:
            self.active.presence.unwatch(self.active.leave)

    def _end(self) -> None:
        if not self._complete and not self._ended and self._task is not None:
            self._ended = True
            self._task.cancel()

    async def _part(self) -> None:
        """Send a final status for the log; a client that has left does not receive it."""
        if self._begun:
            return
        answer = answer_to(TooManyAtOnce()) if self.active.displaced else Response(status_code=_GONE)
        await answer(self._scope, self._receive, self._say)

    async def _hear(self) -> Message:
        if not self._has_body:
            return await self._receive()
        self.active.awaits_body = True
        try:
            message = await self._receive()
        finally:
            self.active.awaits_body = False
        self._has_body = bool(message.get("more_body", False))
        return message

    async def _say(self, message: Message) -> None:
        self._begun = True
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            self._complete = True
        await self._send(message)


def _stranger(request: Request) -> str:
    """Separate, per address, requests with credentials from those without."""
    address, path = client_network(request.client.host) if request.client else "", request.scope["path"]
    kind = "proof" if brings_proof(request) else path if path in _APART else ""
    return f"{address} {kind}"

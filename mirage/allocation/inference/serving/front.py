"""Reverse proxy: a stable address that forwards to the gateway which the state directory names.

A request without the beginning of an answer is sent again to the gateway named then. Inference changes no state,
so it does not matter whether the first gateway has begun to work on it. An answer that has begun is passed through
and never repeated.
"""

from __future__ import annotations

import asyncio
import logging
from time import monotonic
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from mirage.allocation.inference.serving.admission import ELSEWHERE, MemoryBudget, RequestRefused
from mirage.allocation.inference.serving.bodies import ClientDisconnect, origin_of, read_body, unless_gone
from mirage.allocation.inference.serving.httpserver import most_connections
from mirage.allocation.inference.serving.plan import all_bodies_of
from mirage.allocation.inference.serving.replies import AT_A_FRONT, Paces, inquiry_of, pass_back
from mirage.allocation.inference.serving.upstream import Unreachable, Upstream
from mirage.domain.errors import ConfigError

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from mirage.allocation.inference.serving.addressbook import GatewayAddress, GatewayStateFolder
    from mirage.allocation.inference.serving.upstream import Reply, UpstreamRequest

_LOG = logging.getLogger(__name__)
_LOOK = 0.25
_PAUSE = 0.1
_GONE = 499


class Front:
    """Finds the gateway and forwards requests to it."""

    def __init__(self, folder: GatewayStateFolder, patience: float, largest_body: int) -> None:
        """``patience``: seconds for which a request waits for a reachable gateway."""
        self._folder, self._patience, self._largest_body = folder, patience, largest_body
        self._memory = MemoryBudget(all_bodies_of(largest_body))
        self._places = MemoryBudget(most_connections(), "too many of your requests wait here")
        self._paces = Paces(AT_A_FRONT)
        self._address: GatewayAddress | None = None
        self._upstream: Upstream | None = None
        self._looked = -_LOOK
        self._refused = ""
        """The last problem found with the state directory."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI: forward everything."""
        request = Request(scope, receive)
        response = await self._pass_on(request)
        if pace := self._paces.of(request.method, response.status_code):
            await pace.hold(origin_of(request), scope)
        await response(scope, receive, send)

    async def _pass_on(self, request: Request) -> Response:
        try:
            origin = origin_of(request)
            with self._places.reserved(origin) as place, self._memory.reserved(origin) as memory:
                place.resize(1)
                body = await read_body(request, self._largest_body, memory)
                asking = asyncio.ensure_future(self._ask(inquiry_of(request, body)))
                return pass_back(await unless_gone(request, asking), lambda: None)
        except RequestRefused as refusal:
            return Response(refusal.body, refusal.status, headers=refusal.headers, media_type="application/json")
        except ClientDisconnect:
            return Response(status_code=_GONE)

    async def _ask(self, inquiry: UpstreamRequest) -> Reply:
        end, why = monotonic() + self._patience, "no gateway has recorded its address yet"
        while monotonic() < end:
            upstream = self._find()
            if upstream is not None:
                try:
                    reply = await upstream.ask(inquiry)
                except Unreachable as error:
                    why = str(error)
                else:
                    if not any(name == ELSEWHERE for name, _ in reply.headers):
                        return reply
                    reply.close()
                    why = f"{upstream.url} is ending"
            await asyncio.sleep(_PAUSE)
        raise RequestRefused(503, f"no gateway available: {why}", 5)

    def _find(self) -> Upstream | None:
        """The current gateway, from the state directory."""
        if monotonic() - self._looked < _LOOK:
            return self._upstream
        self._looked = monotonic()
        try:
            address = self._folder.read_address()
        except ConfigError as error:
            self._refuse(str(error))
            return None
        self._refused = ""
        if address is not None and address != self._address:
            self._forget()
            self._address, self._upstream = address, Upstream(address.url, address.token)
        return self._upstream

    def _refuse(self, why: str) -> None:
        """Stop forwarding until the directory belongs to its owner alone again: its content is not trusted."""
        if why != self._refused:
            _LOG.error("event=state_folder_refused why=%r", why)
        self._refused = why
        self._forget()

    def _forget(self) -> None:
        if self._upstream is not None:
            self._upstream.close()
        self._address = self._upstream = None

"""What routes require of a request: its caller, the scope of the route, and a body of bounded size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Depends, Request
from starlette.exceptions import HTTPException

from mirage.api.access.caller import ANONYMOUS, SOCKET, Caller, Scope
from mirage.api.access.concurrency import active_request
from mirage.api.access.protocol import PEER, Peer
from mirage.domain.errors import MirageError, NotPermitted
from mirage.domain.texts import client_network

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping

    from mirage.api.access.authentication import Authenticator

_KEY = "mirage.caller"
ADMITTED = "mirage.admitted"
"""Key in a request's scope: the request was counted, within its caller's rate."""
REFUSED = "mirage.refused"
"""Key in the scope of a request without a place: the error. Authentication may not wait for it."""


async def caller_of(request: Request) -> Caller:
    """Return the caller, authenticated once per request.

    Raises ``NotAuthenticated``, ``NotPermitted`` and ``TooOften``.
    """
    found = request.scope.get(_KEY)
    if not isinstance(found, Caller):
        if isinstance(refused := request.scope.get(REFUSED), MirageError):
            raise refused
        gate: Authenticator = request.app.state.service.gate
        with active_request().leavable():
            found = request.scope[_KEY] = await gate.admit(request)
        request.scope[ADMITTED] = True
    return found


def known_caller(scope: object) -> Caller | None:
    """Return the caller if already authenticated. ``scope`` is that of the request."""
    found = scope.get(_KEY) if isinstance(scope, dict) else None
    return found if isinstance(found, Caller) else None


def origin_of(scope: MutableMapping[str, Any]) -> str:
    """Return the user's name, or the address of an unauthenticated request."""
    caller, peer = known_caller(scope), scope.get(PEER)
    if caller is not None and caller.name != ANONYMOUS:
        return caller.name
    if isinstance(peer, Peer):
        return peer.share
    return client_network(scope["client"][0]) if scope.get("client") else ""


def _at_least(scope: Scope) -> Callable[[Caller], Awaitable[Caller]]:
    async def permitted(caller: Annotated[Caller, Depends(caller_of)]) -> Caller:
        if not caller.scope.includes(scope):
            raise NotPermitted(f"{caller.name} has the scope {caller.scope}; this request requires {scope}")
        return caller

    return permitted


Reader = Annotated[Caller, Depends(_at_least(Scope.READ))]
Operator = Annotated[Caller, Depends(_at_least(Scope.OPERATE))]
Admin = Annotated[Caller, Depends(_at_least(Scope.ADMIN))]


async def _local(caller: Operator) -> Caller:
    if caller.how != SOCKET:
        raise NotPermitted("this request is accepted only on the daemon's Unix socket")
    return caller


Local = Annotated[Caller, Depends(_local)]


async def read_body(request: Request, largest: int) -> bytes:
    """Return the body, counted against the caller's rate. Raises ``HTTPException`` (413) if too large."""
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > largest:
            raise HTTPException(413, f"the body is longer than {largest} bytes")
        parts.append(part)
    if caller := known_caller(request.scope):
        gate: Authenticator = request.app.state.service.gate
        gate.charge(caller, request, size)
    return b"".join(parts)

"""What a route asks of its caller before it answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Depends, Request

from mirage.api.access.caller import ANONYMOUS, SOCKET, Caller
from mirage.api.access.concurrency import active_request
from mirage.api.access.peer import PEER, Peer
from mirage.api.access.scope import Scope
from mirage.domain.addresses import client_network
from mirage.domain.errors import MirageError, NotPermitted

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping

    from mirage.api.access.gate import Gate

_KEY = "mirage.caller"
ADMITTED = "mirage.admitted"
"""Where the scope of a request says that it counted against its caller's rate, which had room for it."""
REFUSED = "mirage.refused"
"""Where the scope of a request that has no place has the reason: nothing may wait to find out who asks."""


async def caller_of(request: Request) -> Caller:
    """The user who asks, found out once a request.

    Raises ``NotAuthenticated``, ``NotPermitted`` and ``TooOften``.
    """
    found = request.scope.get(_KEY)
    if not isinstance(found, Caller):
        if isinstance(refused := request.scope.get(REFUSED), MirageError):
            raise refused
        gate: Gate = request.app.state.service.gate
        with active_request().leavable():
            found = request.scope[_KEY] = await gate.admit(request)
        request.scope[ADMITTED] = True
    return found


def known_caller(scope: object) -> Caller | None:
    """Who asked, where that was found out already. ``scope`` is a request's."""
    found = scope.get(_KEY) if isinstance(scope, dict) else None
    return found if isinstance(found, Caller) else None


def origin_of(scope: MutableMapping[str, Any]) -> str:
    """Who asks, as far as that is known of a request: a user's name, or an address."""
    caller, peer = known_caller(scope), scope.get(PEER)
    if caller is not None and caller.name != ANONYMOUS:
        return caller.name
    if isinstance(peer, Peer):
        return peer.share
    return client_network(scope["client"][0]) if scope.get("client") else ""


def _at_least(scope: Scope) -> Callable[[Caller], Awaitable[Caller]]:
    async def permitted(caller: Annotated[Caller, Depends(caller_of)]) -> Caller:
        if not caller.scope.includes(scope):
            raise NotPermitted(f"{caller.name} may {caller.scope} here; this takes {scope}")
        return caller

    return permitted


Reader = Annotated[Caller, Depends(_at_least(Scope.READ))]
Operator = Annotated[Caller, Depends(_at_least(Scope.OPERATE))]
Admin = Annotated[Caller, Depends(_at_least(Scope.ADMIN))]


async def _local(caller: Operator) -> Caller:
    if caller.how != SOCKET:
        raise NotPermitted("this is for callers whom the kernel names: use the daemon's Unix socket")
    return caller


Local = Annotated[Caller, Depends(_local)]

"""The one who asks, however they proved who they are, and what they may do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from fastapi import Depends, Request

from mirage.api.access.scope import Scope
from mirage.domain.errors import NotPermitted

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mirage.api.access.gate import Gate

__all__ = ["Admin", "Caller", "Local", "Operator", "Reader", "Scope", "caller_of"]

SOCKET = "socket"
"""How those came in whom the kernel names."""
ANONYMOUS = "(anonymous)"
"""No user is called so."""
_KEY = "mirage.caller"


@dataclass(frozen=True, slots=True)
class Caller:
    """A user, as known to the machine or by what they brought along."""

    name: str
    scope: Scope
    uid: int = -1
    """-1: came over the network; the name is what counts."""
    how: str = SOCKET
    """How they proved it: ``socket``, ``token ID``, ``jwt``, ``session``, or ``nothing``."""

    @property
    def is_root(self) -> bool:
        """Whether it is this machine's superuser."""
        return self.uid == 0

    @property
    def is_known(self) -> bool:
        """Whether it is a user, with a name here."""
        return not self.name.startswith("uid:") and self.name != ANONYMOUS

    @property
    def is_admin(self) -> bool:
        """Whether the chains of all are theirs to see and command."""
        return self.scope is Scope.ADMIN

    def may_touch(self, owner: str) -> bool:
        """Whether what belongs to this user is theirs to see and command."""
        return self.is_admin or self.name == owner


async def caller_of(request: Request) -> Caller:
    """The user who asks, found out once a request.

    Raises ``NotAuthenticated``, ``NotPermitted`` and ``TooOften``.
    """
    found = request.scope.get(_KEY)
    if not isinstance(found, Caller):
        gate: Gate = request.app.state.service.gate
        found = request.scope[_KEY] = await gate.admit(request)
    return found


def known_caller(scope: object) -> Caller | None:
    """Who asked, where that was found out already. ``scope`` is a request's."""
    found = scope.get(_KEY) if isinstance(scope, dict) else None
    return found if isinstance(found, Caller) else None


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

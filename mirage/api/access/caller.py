"""The one who asks, however they proved who they are, and what they may do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

from fastapi import Depends, Request

from mirage.api.access.peer import peer_of
from mirage.domain.errors import NotPermitted

if TYPE_CHECKING:
    from collections.abc import Callable


class Scope(StrEnum):
    """What a caller may do; each includes those before it."""

    READ = "read"
    """Look at own chains, and at what concerns nobody in particular."""
    OPERATE = "operate"
    """Create own chains and command them."""
    ADMIN = "admin"
    """See and command the chains of all, change what decides."""

    def includes(self, other: Scope) -> bool:
        """Whether who may do this may do the other."""
        order = list(Scope)
        return order.index(self) >= order.index(other)


@dataclass(frozen=True, slots=True)
class Caller:
    """A user, as known to the machine or by what they brought along."""

    name: str
    scope: Scope
    uid: int = -1
    """-1: came over the network; the name is what counts."""

    @property
    def is_root(self) -> bool:
        """Whether it is this machine's superuser."""
        return self.uid == 0

    @property
    def is_known(self) -> bool:
        """Whether its uid has a name here."""
        return not self.name.startswith("uid:")

    @property
    def is_admin(self) -> bool:
        """Whether the chains of all are theirs to see and command."""
        return self.scope is Scope.ADMIN


def caller_of(request: Request) -> Caller:
    """The user who asks. Raises ``NotPermitted`` for nobody in particular."""
    peer = peer_of(request)
    admins: frozenset[str] = request.app.state.service.admins
    scope = Scope.ADMIN if peer.is_root or peer.name in admins else Scope.OPERATE
    return Caller(peer.name, scope, peer.uid)


def _at_least(scope: Scope) -> Callable[[Caller], Caller]:
    def permitted(caller: Annotated[Caller, Depends(caller_of)]) -> Caller:
        if not caller.scope.includes(scope):
            raise NotPermitted(f"{caller.name} may {caller.scope} here; this takes {scope}")
        return caller

    return permitted


Reader = Annotated[Caller, Depends(_at_least(Scope.READ))]
Operator = Annotated[Caller, Depends(_at_least(Scope.OPERATE))]
Admin = Annotated[Caller, Depends(_at_least(Scope.ADMIN))]

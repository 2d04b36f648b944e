"""The caller of a request: user and authentication, and the scope: what the caller may do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Scope(StrEnum):
    """What a caller may do; each includes those before it."""

    READ = "read"
    """View own chains, and data that belongs to no user."""
    OPERATE = "operate"
    """Create and control own chains."""
    ADMIN = "admin"
    """View and control all chains, and promote models."""

    def includes(self, other: Scope) -> bool:
        """Whether this scope includes ``other``."""
        return _ORDER[self] >= _ORDER[other]


_ORDER = {scope: place for place, scope in enumerate(Scope)}


def lesser(one: Scope, other: Scope) -> Scope:
    """Return the smaller of two scopes."""
    return min(one, other, key=_ORDER.__getitem__)


SOCKET = "socket"
"""Authentication by the kernel: the peer of the Unix socket."""
ANONYMOUS = "(anonymous)"
"""Name of unauthenticated callers; no user has it."""


@dataclass(frozen=True, slots=True)
class Caller:
    """A user, identified by the kernel or by a token."""

    name: str
    scope: Scope
    uid: int = -1
    """-1: over the network, where only the name counts."""
    how: str = SOCKET
    """Authentication: ``socket``, ``token ID``, ``jwt``, ``session``, or ``nothing``."""
    token_id: str = ""
    """The token of the request, or the one that opened the session."""
    by_link: bool = False
    """Whether a login link opened the session."""

    @property
    def is_root(self) -> bool:
        """Whether it is this machine's superuser."""
        return self.uid == 0

    @property
    def makes_tokens(self) -> bool:
        """Whether the caller may create tokens and login links: no token may prolong itself."""
        return self.how == SOCKET or self.by_link

    @property
    def is_known(self) -> bool:
        """Whether the caller is a user with a name on this machine."""
        return not self.name.startswith("uid:") and self.name != ANONYMOUS

    @property
    def is_admin(self) -> bool:
        """Whether the caller may view and control the chains of all users."""
        return self.scope is Scope.ADMIN

    def may_touch(self, owner: str) -> bool:
        """Whether the caller may view and control what belongs to ``owner``."""
        return self.is_admin or self.name == owner

"""The one who asks, however they proved who they are, and what they may do."""

from __future__ import annotations

from dataclasses import dataclass

from mirage.api.access.scope import Scope

SOCKET = "socket"
"""How those came in whom the kernel names."""
ANONYMOUS = "(anonymous)"
"""No user is called so."""


@dataclass(frozen=True, slots=True)
class Caller:
    """A user, as known to the machine or by what they brought along."""

    name: str
    scope: Scope
    uid: int = -1
    """-1: came over the network; the name is what counts."""
    how: str = SOCKET
    """How they proved it: ``socket``, ``token ID``, ``jwt``, ``session``, or ``nothing``."""
    token_id: str = ""
    """The token that they brought along, or that opened the session."""
    by_link: bool = False
    """Their session was opened by a login link."""

    @property
    def is_root(self) -> bool:
        """Whether it is this machine's superuser."""
        return self.uid == 0

    @property
    def makes_tokens(self) -> bool:
        """Whether they may make tokens and login links: no token prolongs itself, nor does Slurm's."""
        return self.how == SOCKET or self.by_link

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

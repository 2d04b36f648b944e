"""The user at the other end of a Unix socket, as the kernel reports it (``SO_PEERCRED``)."""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fastapi import Request

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

NAMELESS = "uid:*"
"""Name of all socket callers whose UIDs have no name on this machine."""
_NO_NAME = "uid:"
PEER = "mirage.peer"
"""Key in a request's scope."""
_CREDENTIALS = struct.Struct("iII")  # pid, uid, gid


@dataclass(frozen=True, slots=True)
class Peer:
    """The user at the other end of a connection."""

    uid: int
    name: str
    """``uid:1234`` if the UID has no name on this machine; such a user cannot own chains."""

    @classmethod
    def of(cls, uid: int, name: str) -> Peer:
        """Return the user with this UID; ``name`` is empty if this machine has none for it."""
        return cls(uid, name or f"{_NO_NAME}{uid}")

    @property
    def is_root(self) -> bool:
        """Whether it is the superuser."""
        return self.uid == 0

    @property
    def share(self) -> str:
        """Name under which shared limits count it: UIDs without a name are one user.

        Unprivileged users have tens of thousands of them (``/etc/subuid``).
        """
        return self.name if self.is_root or not self.name.startswith(_NO_NAME) else NAMELESS


def peer_of(request: Request) -> Peer | None:
    """Return the user as the kernel reports it; ``None`` over the network."""
    peer = request.scope.get(PEER)
    return peer if isinstance(peer, Peer) else None


def known_to(app: ASGIApp, peer: Peer) -> ASGIApp:
    """Wrap ``app`` for one connection: each request's scope has the peer."""

    async def with_peer(scope: Scope, receive: Receive, send: Send) -> None:
        scope[PEER] = peer
        await app(scope, receive, send)

    return with_peer


def peer_uid(connection: socket.socket) -> int:
    """Return the UID of the process that opened ``connection``, a connected Unix socket."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, uid, _ = _CREDENTIALS.unpack(raw)
    return int(uid)

"""Who is at the other end: the kernel knows (``SO_PEERCRED``), and nothing that a caller sends counts."""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fastapi import Request

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

NAMELESS = "uid:*"
"""All callers on the socket whose UIDs have no name on this machine."""
_NO_NAME = "uid:"
PEER = "mirage.peer"
"""Where a request's scope has it."""
_CREDENTIALS = struct.Struct("iII")  # pid, uid, gid


@dataclass(frozen=True, slots=True)
class Peer:
    """The user at the other end of a connection."""

    uid: int
    name: str
    """``uid:1234`` where this machine has no name for the UID: owns no chains, since none can be made for it."""

    @classmethod
    def of(cls, uid: int, name: str) -> Peer:
        """The user with this UID; ``name`` is empty where this machine has none for it."""
        return cls(uid, name or f"{_NO_NAME}{uid}")

    @property
    def is_root(self) -> bool:
        """Whether it is the superuser."""
        return self.uid == 0

    @property
    def share(self) -> str:
        """Whose share of what all use it takes: UIDs without a name are one user.

        Unprivileged users have tens of thousands of them (``/etc/subuid``).
        """
        return self.name if self.is_root or not self.name.startswith(_NO_NAME) else NAMELESS


def peer_of(request: Request) -> Peer | None:
    """The user at the other end, by the kernel's word; ``None``: it says nothing, as over the network."""
    peer = request.scope.get(PEER)
    return peer if isinstance(peer, Peer) else None


def known_to(app: ASGIApp, peer: Peer) -> ASGIApp:
    """``app`` for one connection: each request says whose it is."""

    async def with_peer(scope: Scope, receive: Receive, send: Send) -> None:
        scope[PEER] = peer
        await app(scope, receive, send)

    return with_peer


def peer_uid(connection: socket.socket) -> int:
    """Whose process opened ``connection``, a connected Unix socket."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, uid, _ = _CREDENTIALS.unpack(raw)
    return int(uid)

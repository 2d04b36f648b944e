"""Who is at the other end: the kernel knows (``SO_PEERCRED``), and nothing that a caller sends counts."""

from __future__ import annotations

import pwd
import socket
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fastapi import Request

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

PEER = "mirage.peer"
"""Where a request's scope has it."""
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid


@dataclass(frozen=True, slots=True)
class Peer:
    """The user at the other end of a connection."""

    uid: int
    name: str
    """``uid:1234`` where this machine has no name for the uid: owns no chains, since none can be made for it."""

    @classmethod
    def of(cls, connection: socket.socket) -> Peer:
        """Whose process opened ``connection``, a connected Unix socket."""
        raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        _, uid, _ = _CREDENTIALS.unpack(raw)
        return cls(uid, _name(uid))

    @property
    def is_root(self) -> bool:
        """Whether it is the superuser."""
        return self.uid == 0


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


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid:{uid}"

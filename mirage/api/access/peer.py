"""Who is at the other end: the kernel knows (``SO_PEERCRED``), and nothing that a caller sends counts.

uvicorn tells an application nothing about a Unix socket's peer. So each connection gets an application of its own,
wrapped with the credentials that were read when it was made. Should that ever fail to reach the scope, every
request is refused: there is no way around it.
"""

from __future__ import annotations

import pwd
import socket
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fastapi import Request
from uvicorn.protocols.http.h11_impl import H11Protocol

from mirage.domain.errors import NotPermitted

if TYPE_CHECKING:
    import asyncio

    from starlette.types import ASGIApp, Receive, Scope, Send

_KEY = "mirage.peer"
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


class PeerProtocol(H11Protocol):
    """HTTP that tells the application in each request's scope who is at the other end."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Read the credentials, once for the whole connection."""
        self.app = _known_to(self.app, Peer.of(transport.get_extra_info("socket")))
        super().connection_made(transport)


def peer_of(request: Request) -> Peer:
    """The user who asks. Raises ``NotPermitted`` where the kernel was not asked."""
    peer = request.scope.get(_KEY)
    if not isinstance(peer, Peer):
        raise NotPermitted("this interface is for callers whom the kernel names: use the daemon's Unix socket")
    return peer


def _known_to(app: ASGIApp, peer: Peer) -> ASGIApp:
    async def with_peer(scope: Scope, receive: Receive, send: Send) -> None:
        scope[_KEY] = peer
        await app(scope, receive, send)

    return with_peer


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid:{uid}"

"""Who is at the other end: the kernel knows (``SO_PEERCRED``), and nothing that a caller sends counts.

uvicorn tells an application nothing about a Unix socket's peer. So each connection gets an application of its own,
wrapped with the credentials that were read when it was made. Should that ever fail to reach the scope, the request
is one from afar, which is refused unless it brings a token: there is no way around it.

Whoever is slow to say what they want, or opens too many connections, is cut off here.
"""

from __future__ import annotations

import pwd
import socket
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fastapi import Request
from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    import asyncio

    from starlette.types import ASGIApp, Receive, Scope, Send

_KEY = "mirage.peer"
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid
HEADERS_WITHIN = 10.0
"""Seconds from the first byte of a request, or from the connection, to the end of its headers."""
MOST_OF_ONE = 128
"""Connections that one user, root excepted, may hold on the socket."""


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
    """HTTP that tells the application in each request's scope who is at the other end of a Unix socket."""

    peer: Peer | None = None
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Read the credentials, once for the whole connection."""
        super().connection_made(transport)
        connection: socket.socket = transport.get_extra_info("socket")
        if connection.family == socket.AF_UNIX:
            self.peer = Peer.of(connection)
            self.app = _known_to(self.app, self.peer)
            if not self.peer.is_root and self._held() > MOST_OF_ONE:
                transport.abort()
                return
        self._await_headers()

    def data_received(self, data: bytes) -> None:
        """Take what comes; the clock runs until a request is complete enough to be answered."""
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_clock()
        else:
            self._await_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody is waited for any more."""
        self._stop_clock()
        super().connection_lost(exc)

    def _held(self) -> int:
        return sum(getattr(other, "peer", None) == self.peer for other in self.connections)

    def _await_headers(self) -> None:
        if self._deadline is None and not self.transport.is_closing():
            self._deadline = self.loop.call_later(HEADERS_WITHIN, self.transport.abort)

    def _stop_clock(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def peer_of(request: Request) -> Peer | None:
    """The user at the other end, by the kernel's word; ``None``: it says nothing, as over the network."""
    peer = request.scope.get(_KEY)
    return peer if isinstance(peer, Peer) else None


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

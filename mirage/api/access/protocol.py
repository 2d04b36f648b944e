"""HTTP on one connection: the peer's credentials, and bounds of what a client can make the daemon hold.

The kernel reports the user at the other end of a Unix socket (``SO_PEERCRED``). uvicorn does not pass on the peer
of a Unix socket. So each connection gets a separate application, wrapped with the credentials that were read when
the connection was made. If they did not reach the scope, the request would count as one over the network, which
is rejected without a token.

Clients that are slow to send a request, send a too long one or open too many connections are disconnected here.
"""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fastapi import Request

from mirage.boundedhttp import BoundedProtocol, has_left
from mirage.userdb import NAMES

if TYPE_CHECKING:
    import asyncio

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


HEADERS_WITHIN = 10.0
"""Timeout in seconds, from the first byte of a request, or from the connection, to the end of the headers."""
_NAMED_WITHIN = 30.0
MOST_OF_ONE = 128
"""Open connections of one user, except root, on the socket."""
MOST_OF_ADDRESS = 256
"""Open connections of one client over the network; proxies, which serve many clients, are exempt."""
MOST_BEFORE_EVICTION = 256
"""Idle connections at one address. Beyond that, each new one ends the oldest idle one of the user (on the socket)
or client (over the network) that has most. ``mirage.api.access.concurrency`` bounds those with a request."""


class PeerProtocol(BoundedProtocol):
    """HTTP that adds the peer of a Unix socket to each request's scope."""

    peer: Peer | None = None
    _deadline: asyncio.TimerHandle | None = None
    _early: list[bytes] | None = None
    """Data received before the peer's name was known."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Read the credentials, once per connection."""
        super().connection_made(transport)
        connection: socket.socket = transport.get_extra_info("socket")
        if has_left(connection):  # before it was accepted: a flood of such connections stays cheap
            transport.abort()
            return
        if connection.family == socket.AF_UNIX:
            self._find_name(peer_uid(connection))
        else:
            self._let_in()

    def _find_name(self, uid: int) -> None:
        """Read no request before the peer's name is known; the user database may answer slowly."""
        if uid == 0:
            self._know(uid, "root")
        elif (name := NAMES.last(uid)) is not None:
            self._know(uid, name)
        else:
            self.origin = NAMELESS
            if self._held() > MOST_OF_ONE:
                self.transport.abort()
                return
            self._early = []
            self._deadline = self.loop.call_later(_NAMED_WITHIN, self.transport.abort)
            NAMES.ask(uid, lambda name: self.loop.call_soon_threadsafe(self._know_later, uid, name))

    def _know_later(self, uid: int, name: str) -> None:
        self._stop_clock()
        early, self._early = self._early or [], None
        if self.transport.is_closing():
            return
        self._know(uid, name)
        self.flow.resume_reading()
        for data in early:
            if not self.transport.is_closing():
                self.data_received(data)

    def _know(self, uid: int, name: str) -> None:
        self.peer = Peer.of(uid, name)
        self.origin = self.peer.share
        self.app = known_to(self.app, self.peer)
        if not self.peer.is_root and self._held() > MOST_OF_ONE:
            self.transport.abort()
        else:
            self._let_in()

    def _let_in(self) -> None:
        self.make_room(MOST_BEFORE_EVICTION + self._busy())
        if self.peer is None and not self.config.proxy_headers and self._of_address() > MOST_OF_ADDRESS:
            self.transport.abort()
            return
        self._await_headers()

    def data_received(self, data: bytes) -> None:
        """Parse received data; the timeout runs until a request can be processed."""
        if self._early is not None:
            self._early.append(data)
            self.flow.pause_reading()
            return
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_clock()
        else:
            self._await_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timeout."""
        self._stop_clock()
        super().connection_lost(exc)

    def _held(self) -> int:
        return sum(getattr(other, "origin", None) == self.origin for other in self.connections)

    def _busy(self) -> int:
        others = (other for other in self.connections if isinstance(other, PeerProtocol))
        return sum(not other.awaits_client for other in others)

    def _of_address(self) -> int:
        others = (other for other in self.connections if isinstance(other, PeerProtocol))
        return sum(other.origin == self.origin and not other.transport.is_closing() for other in others)

    def _await_headers(self) -> None:
        if self._deadline is None and not self.transport.is_closing():
            self._deadline = self.loop.call_later(HEADERS_WITHIN, self.transport.abort)

    def _stop_clock(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

"""HTTP on one connection: it says who is at the other end, and bounds what a client can make the daemon hold.

uvicorn tells an application nothing about a Unix socket's peer. So each connection gets an application of its own,
wrapped with the credentials that were read when it was made. Should that ever fail to reach the scope, the request
is one from afar, which is refused unless it brings a token: there is no way around it.

Whoever is slow to say what they want, says it at too great a length or opens too many connections is cut off here.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from mirage.api.access.peer import Peer, known_to

if TYPE_CHECKING:
    import asyncio

HEADERS_WITHIN = 10.0
"""Seconds from the first byte of a request, or from the connection, to the end of its headers."""
LONGEST_HEADERS = 64 << 10
"""Bytes that may come and lead to nothing: headers, or what stands around and behind a body's parts."""
MOST_IN_LINE = 32
"""Requests that a client may send before it has the answer to the first."""
MOST_OF_ONE = 128
"""Connections that one user, root excepted, may hold on the socket."""


class PeerProtocol(HttpToolsProtocol):
    """HTTP that tells the application in each request's scope who is at the other end of a Unix socket."""

    peer: Peer | None = None
    _deadline: asyncio.TimerHandle | None = None
    _idle = 0
    """Bytes since anything was complete."""
    _moved = False
    """Whether something was completed by the bytes that have just come."""
    _in_headers = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Read the credentials, once for the whole connection."""
        super().connection_made(transport)
        connection: socket.socket = transport.get_extra_info("socket")
        if connection.family == socket.AF_UNIX:
            self.peer = Peer.of(connection)
            self.app = known_to(self.app, self.peer)
            if not self.peer.is_root and self._held() > MOST_OF_ONE:
                transport.abort()
                return
        self._await_headers()

    def data_received(self, data: bytes) -> None:
        """Take what comes; the clock runs until a request is complete enough to be answered."""
        self._moved = False
        super().data_received(data)
        self._idle = 0 if self._moved else self._idle + len(data)
        if self._idle > LONGEST_HEADERS:
            self.send_400_response("What came is no request, or one with too much around it.")
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_clock()
        else:
            self._await_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody is waited for any more."""
        self._stop_clock()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Answer what is no request, unless that would seem the answer to the one before; and hear no more."""
        if self.cycle is None or self.cycle.response_complete:
            super().send_400_response(msg)
        else:
            self.transport.close()

    # What the parser finds

    def on_message_begin(self) -> None:
        """A request begins."""
        self._in_headers = True
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """One before the body; behind it, where the application has seen the others already, none counts."""
        if self._in_headers:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The request can be answered, when its turn comes."""
        self._moved, self._in_headers = True, False
        if len(self.pipeline) >= MOST_IN_LINE:
            raise ValueError("too many requests at once")
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        self._moved = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The end of the body."""
        self._moved = True
        super().on_message_complete()

    def _held(self) -> int:
        return sum(getattr(other, "peer", None) == self.peer for other in self.connections)

    def _await_headers(self) -> None:
        if self._deadline is None and not self.transport.is_closing():
            self._deadline = self.loop.call_later(HEADERS_WITHIN, self.transport.abort)

    def _stop_clock(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

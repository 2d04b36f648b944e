"""Worker connections: the listening socket, authentication and messages."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from mirage.allocation.inference.serving import proof
from mirage.allocation.inference.serving.frames import LONGEST_BYTES, Assembler, BadFrame, frame

if TYPE_CHECKING:
    from collections.abc import Callable

_GREETING = 1 << 16
"""Bytes accepted from a connection before it has authenticated."""
_GREETED_WITHIN = 10.0
_MOST_UNPROVEN = 256
_KEEPALIVE = ((socket.TCP_KEEPIDLE, 5), (socket.TCP_KEEPINTVL, 2), (socket.TCP_KEEPCNT, 3))
"""Keep-alive: a node that disappears is noticed after about 10 s."""


@dataclass(frozen=True, slots=True)
class Expected:
    """A worker that was started and has not connected yet."""

    secret: str
    setup: dict[str, Any]
    ready: asyncio.Future[tuple[Link, dict[str, Any]]]
    """The connection, and what the worker reports about each model."""


class Gate:
    """Listens for workers and admits expected ones.

    Any process on the network may connect. When too many connections have not authenticated, the oldest of them is
    closed; a worker authenticates with its first message, within milliseconds.
    """

    def __init__(self) -> None:
        self._unproven: dict[Link, None] = {}
        self._expected: dict[str, Expected] = {}
        self._server: asyncio.Server | None = None
        self.address = ""

    async def open(self, host: str, named: str) -> None:
        """Listen at ``host`` on a free port; workers connect to ``named``."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: Link(self._expected.get, self._unproven), host, 0)
        self.address = f"{named}:{self._server.sockets[0].getsockname()[1]}"

    def close(self) -> None:
        """Admit no more workers; existing connections stay."""
        if self._server is not None:
            self._server.close()

    def expect(self, unit: str, secret: str, setup: dict[str, Any]) -> Expected:
        """Expect a worker with this secret; older secrets of the name become invalid."""
        expected = Expected(secret, setup, asyncio.get_running_loop().create_future())
        self._expected[unit] = expected
        return expected


class Link(asyncio.Protocol):
    """One worker's connection: authentication, list of loaded models, then answers."""

    def __init__(self, find: Callable[[str], Expected | None], unproven: dict[Link, None]) -> None:
        """``unproven``: all connections of the same gate that have not authenticated, the oldest first."""
        self._find, self._unproven = find, unproven
        self._frames = Assembler(_GREETING)
        self._challenge = proof.fresh()
        self._expected: Expected | None = None
        self._transport: asyncio.Transport | None = None
        self._patience: asyncio.TimerHandle | None = None
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.hear: Callable[[dict[str, Any], memoryview], None] | None = None
        """Called with each frame, once the worker is ready."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the challenge."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by its class
        self._unproven[self] = None
        if len(self._unproven) > _MOST_UNPROVEN:
            next(iter(self._unproven)).abort()
        connection = transport.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _KEEPALIVE:
            connection.setsockopt(socket.IPPROTO_TCP, option, value)
        self._patience = asyncio.get_running_loop().call_later(_GREETED_WITHIN, self._be_patient_no_more)
        self.send({"challenge": self._challenge})

    def data_received(self, data: bytes) -> None:
        """Parse received data; invalid data closes the connection."""
        try:
            for header, content in self._frames.feed(data):
                self._take(header, content)
        except (BadFrame, KeyError, TypeError, ValueError, OverflowError):
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """The worker has disconnected."""
        del exc
        self._unproven.pop(self, None)
        if self._patience is not None:
            self._patience.cancel()
        if not self.closed.done():
            self.closed.set_result(None)

    def send(self, header: dict[str, Any], *parts: bytes | memoryview) -> None:
        """Send a frame. It is lost if the connection has ended; ``closed`` reports that."""
        assert self._transport is not None
        if not self._transport.is_closing():
            self._transport.writelines(frame(header, *parts))

    def abort(self) -> None:
        """Close the connection."""
        assert self._transport is not None
        self._unproven.pop(self, None)
        self._transport.abort()

    def _take(self, header: dict[str, Any], content: memoryview) -> None:
        if self._expected is None:
            self._greet(header)
        elif self.hear is None:
            if not self._expected.ready.done():
                self._expected.ready.set_result((self, dict(header["ready"])))
        else:
            self.hear(header, content)

    def _greet(self, header: dict[str, Any]) -> None:
        expected = self._find(str(header["unit"]))
        if expected is None or not proof.proves(expected.secret, "worker", self._challenge, header["proof"]):
            self.abort()
            return
        self._expected, self._frames.longest = expected, int(expected.setup.get("largest_answer", LONGEST_BYTES))
        self._unproven.pop(self, None)
        if self._patience is not None:
            self._patience.cancel()
        self.send({"proof": proof.prove(expected.secret, "gateway", str(header["challenge"]))} | expected.setup)

    def _be_patient_no_more(self) -> None:
        self.abort()

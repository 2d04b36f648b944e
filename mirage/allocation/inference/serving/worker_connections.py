"""Worker connections: the listening socket, authentication, and the messages of both sides.

A message is a JSON header and bytes. Its frame is the header's length (4 bytes, little-endian), the length of the
bytes (8 bytes), the header, the bytes.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from mirage.allocation.inference.serving import addressbook
from mirage.documentreading import parse_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_LENGTHS = struct.Struct("<IQ")
_TERSE = json.JSONEncoder(separators=(",", ":"))
_LONGEST_HEADER = 1 << 20
LONGEST_BYTES = 2 << 30


class BadFrame(Exception):
    """The received bytes are no frame."""


def frame(header: dict[str, Any], *parts: bytes | memoryview) -> list[bytes | memoryview]:
    """The buffers of a frame, to be sent in order; ``parts`` are not copied."""
    text = _TERSE.encode(header).encode()
    return [_LENGTHS.pack(len(text), sum(map(len, parts))) + text, *parts]


class Assembler:
    """Parses frames from received data of any size."""

    def __init__(self, longest: int = LONGEST_BYTES) -> None:
        """``longest``: largest frame, in bytes."""
        self.longest = longest
        self._held = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[dict[str, Any], memoryview]]:
        """Add data and return the complete frames. Raises ``BadFrame``."""
        self._held += data
        while found := self._next():
            yield found

    def _next(self) -> tuple[dict[str, Any], memoryview] | None:
        if len(self._held) < _LENGTHS.size:
            return None
        text, size = _checked(*_LENGTHS.unpack_from(self._held), longest=self.longest)
        end = _LENGTHS.size + text + size
        if len(self._held) < end:
            return None
        whole = memoryview(bytes(memoryview(self._held)[:end]))
        del self._held[:end]
        return _header(whole[_LENGTHS.size : end - size]), whole[end - size :]


def too_large(size: int, largest: int) -> str:
    """Why an answer is too large to be sent."""
    return f"the answer has {size:,} bytes, at most {largest:,} (largest_answer_mb); request less at a time"


def send(connection: socket.socket, header: dict[str, Any], *parts: bytes | memoryview) -> None:
    """Send a frame on a blocking socket."""
    buffers = frame(header, *parts)
    if sum(map(len, buffers)) < 1 << 16:
        connection.sendall(b"".join(buffers))
        return
    for buffer in buffers:
        connection.sendall(buffer)


def receive(connection: socket.socket, longest: int = LONGEST_BYTES) -> tuple[dict[str, Any], memoryview]:
    """Read a frame from a blocking socket. Raises ``BadFrame``, and ``EOFError`` where the peer has closed."""
    text, size = _checked(*_LENGTHS.unpack(_exactly(connection, _LENGTHS.size)), longest=longest)
    return _header(_exactly(connection, text)), _exactly(connection, size)


def _exactly(connection: socket.socket, size: int) -> memoryview:
    whole = memoryview(bytearray(size))
    got = 0
    while got < size:
        count = connection.recv_into(whole[got:])
        if count == 0:
            raise EOFError("the peer has closed the connection")
        got += count
    return whole


def _checked(text: int, size: int, *, longest: int) -> tuple[int, int]:
    if text > _LONGEST_HEADER or size > longest:
        raise BadFrame(f"frame too long: {text} + {size} bytes")
    return text, size


def _header(text: memoryview) -> dict[str, Any]:
    try:
        header = parse_json(bytes(text))
    except ValueError as error:
        raise BadFrame(f"the header of a frame is invalid JSON: {error}") from None
    if not isinstance(header, dict):
        raise BadFrame("the header of a frame is not a JSON object")
    return header


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
    ready: asyncio.Future[tuple[WorkerConnection, dict[str, Any]]]
    """The connection, and what the worker reports about each model."""


class WorkerListener:
    """Listens for workers and admits expected ones.

    Any process on the network may connect. When too many connections have not authenticated, the oldest of them is
    closed; a worker authenticates with its first message, within milliseconds.
    """

    def __init__(self) -> None:
        self._unproven: dict[WorkerConnection, None] = {}
        self._expected: dict[str, Expected] = {}
        self._server: asyncio.Server | None = None
        self.address = ""

    async def open(self, host: str, named: str) -> None:
        """Listen at ``host`` on a free port; workers connect to ``named``."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: WorkerConnection(self._expected.get, self._unproven), host, 0
        )
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


class WorkerConnection(asyncio.Protocol):
    """One worker's connection: authentication, list of loaded models, then answers."""

    def __init__(self, find: Callable[[str], Expected | None], unproven: dict[WorkerConnection, None]) -> None:
        """``unproven``: all connections of the same gate that have not authenticated, the oldest first."""
        self._find, self._unproven = find, unproven
        self._frames = Assembler(_GREETING)
        self._challenge = addressbook.fresh()
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
        if expected is None or not addressbook.proves(expected.secret, "worker", self._challenge, header["proof"]):
            self.abort()
            return
        self._expected, self._frames.longest = expected, int(expected.setup.get("largest_answer", LONGEST_BYTES))
        self._unproven.pop(self, None)
        if self._patience is not None:
            self._patience.cancel()
        self.send(
            {"proof": addressbook.prove(expected.secret, "gateway", str(header["challenge"]))} | expected.setup
        )

    def _be_patient_no_more(self) -> None:
        self.abort()

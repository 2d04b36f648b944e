"""Another HTTP server, asked over connections that are kept: a successor's gateway, or the one behind a front."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import h11

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

_CONNECT = 5.0
_MOST_KEPT = 64
_CHUNK = 1 << 16
_HOP = {b"connection", b"keep-alive", b"transfer-encoding", b"upgrade", b"te", b"trailer"}
"""Headers that are for one connection alone."""
_ANEW = _HOP | {b"host", b"content-length"}


class Unreachable(Exception):
    """Nobody has begun to answer: asking again, there or elsewhere, repeats nothing."""


class CutOff(Exception):
    """The answer has begun, and its rest does not come."""


@dataclass(frozen=True, slots=True)
class Inquiry:
    """A request to be passed on."""

    method: str
    target: str
    headers: list[tuple[bytes, bytes]]
    body: bytes


@dataclass(frozen=True, slots=True)
class Reply:
    """The head of an answer; its body comes by ``content``. ``close`` is due when nobody reads on."""

    status: int
    headers: list[tuple[bytes, bytes]]
    content: AsyncIterator[bytes]
    close: Callable[[], None]


class Upstream:
    """One server's address, and connections to it."""

    def __init__(self, url: str) -> None:
        """``url``: ``http://HOST:PORT`` or ``https://...``. Raises ``ValueError``."""
        parts = urlsplit(url)
        whole = parts.scheme in ("http", "https") and parts.hostname and parts.port and parts.path in ("", "/")
        if not (whole and parts.hostname and parts.port):
            raise ValueError(f"{url!r} is no address such as http://127.0.0.1:8800")
        self.url = url.rstrip("/")
        self.host, self.port = parts.hostname, parts.port
        self.tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._kept: list[_Connection] = []

    async def ask(self, inquiry: Inquiry) -> Reply:
        """Raises ``Unreachable`` while nothing of an answer has come.

        A kept connection may have been closed by the server meanwhile; then a new one is made.
        """
        while self._kept:
            connection = self._kept.pop()
            with contextlib.suppress(Unreachable):
                return await self._ask(connection, inquiry)
        return await self._ask(await self._connect(), inquiry)

    def close(self) -> None:
        """Those connections that nobody uses."""
        while self._kept:
            self._kept.pop().close()

    async def _connect(self) -> _Connection:
        opening = asyncio.open_connection(self.host, self.port, ssl=self.tls)
        try:
            reader, writer = await asyncio.wait_for(opening, _CONNECT)
        except (OSError, TimeoutError) as error:
            raise Unreachable(f"{self.url}: {error}") from error
        return _Connection(reader, writer, f"{self.host}:{self.port}".encode())

    async def _ask(self, connection: _Connection, inquiry: Inquiry) -> Reply:
        try:
            head = await connection.ask(inquiry)
        except BaseException:
            connection.close()
            raise
        headers = [(name, value) for name, value in head.headers.raw_items() if name.lower() not in _HOP]
        return Reply(head.status_code, headers, connection.content(), lambda: self._put_back(connection))

    def _put_back(self, connection: _Connection) -> None:
        if connection.reusable() and len(self._kept) < _MOST_KEPT:
            self._kept.append(connection)
        else:
            connection.close()


class _Connection:
    """HTTP/1.1 by h11, one request after the other."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: bytes) -> None:
        self._reader, self._writer, self._host = reader, writer, host
        self._http = h11.Connection(h11.CLIENT)

    async def ask(self, inquiry: Inquiry) -> h11.Response:
        """The head of the answer. Raises ``Unreachable``."""
        kept = [(name, value) for name, value in inquiry.headers if name.lower() not in _ANEW]
        headers = [(b"host", self._host), *kept, (b"content-length", str(len(inquiry.body)).encode())]
        request = h11.Request(method=inquiry.method, target=inquiry.target, headers=headers)
        try:
            self._writer.write(b"".join(self._encoded(request, inquiry.body)))
            await self._writer.drain()
            while True:
                event = await self._event()
                if isinstance(event, h11.Response):
                    return event
        except (OSError, CutOff, h11.RemoteProtocolError) as error:
            raise Unreachable(f"{self._host.decode()}: {error}") from error

    async def content(self) -> AsyncIterator[bytes]:
        """Raises ``CutOff``."""
        while True:
            try:
                event = await self._event()
            except (OSError, h11.RemoteProtocolError) as error:
                raise CutOff(str(error)) from error
            if isinstance(event, h11.Data):
                yield bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                return

    def reusable(self) -> bool:
        """Whether the answer is through and the server keeps the connection; it is ready for the next then."""
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            return False
        self._http.start_next_cycle()
        return not self._reader.at_eof()

    def close(self) -> None:
        """At once."""
        self._writer.transport.abort()

    def _encoded(self, request: h11.Request, body: bytes) -> list[bytes]:
        events = [request, *([h11.Data(data=body)] if body else []), h11.EndOfMessage()]
        return [self._http.send(event) or b"" for event in events]

    async def _event(self) -> h11.Event:
        while True:
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                data = await self._reader.read(_CHUNK)
                if not data:
                    raise CutOff("the connection was closed")
                self._http.receive_data(data)
            elif isinstance(event, h11.ConnectionClosed) or event is h11.PAUSED:
                raise CutOff("the connection was closed")
            else:
                assert not isinstance(event, type)
                return event

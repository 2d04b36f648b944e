"""HTTP client with persistent connections: to a successor's gateway, or to the gateway behind a reverse proxy."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import httptools

from mirage.allocation.inference.serving import addressbook
from mirage.domain.texts import host_in_url, without_secrets

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

_CONNECT = 5.0
_WITHIN = 3_600.0
"""Seconds for a whole exchange: the longest streamed answer of a model."""
_LARGEST_HEAD = 1 << 18
"""Bytes of status and headers, including interim answers."""
_MOST_KEPT = 64
_LARGEST_PROOF = 1_024
_CHUNK = 1 << 16
_HOP = {b"connection", b"keep-alive", b"transfer-encoding", b"upgrade", b"te", b"trailer", b"expect"}
"""Hop-by-hop headers."""
_ANEW = _HOP | {b"host", b"content-length"}


class Unreachable(Exception):
    """The server has not begun to answer: a retry, there or elsewhere, repeats nothing."""


class CutOff(Exception):
    """The answer has begun and is incomplete."""


@dataclass(frozen=True, slots=True)
class UpstreamRequest:
    """A request to forward."""

    method: str
    target: str
    headers: list[tuple[bytes, bytes]]
    body: bytes


@dataclass(frozen=True, slots=True)
class Reply:
    """The head of an answer; ``content`` yields its body. Call ``close`` when the client stops reading."""

    status: int
    headers: list[tuple[bytes, bytes]]
    content: AsyncIterator[bytes]
    close: Callable[[], None]
    whole: bytes | None = None
    """The body, if all of it came with the head; ``content`` is not needed then."""


class Upstream:
    """The address of one server, and connections to it."""

    def __init__(self, url: str, token: str = "", within: float = _WITHIN) -> None:
        """``url``: ``http://HOST:PORT`` or ``https://...``; ``within``: seconds for a whole exchange.

        ``token``: of the gateway that listens there; the server must prove to know it before it gets a request.
        Empty: no proof. Raises ``ValueError``.
        """
        parts = urlsplit(url)
        whole = parts.scheme in ("http", "https") and parts.hostname and parts.port and parts.path in ("", "/")
        if not (whole and parts.hostname and parts.port):
            raise ValueError(f"invalid address {without_secrets(url)!r}; expected such as http://127.0.0.1:8800")
        self.url = url.rstrip("/")
        self.host, self.port = parts.hostname, parts.port
        self.tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._token, self._within = token, within
        self._kept: list[_Connection] = []

    async def ask(self, inquiry: UpstreamRequest) -> Reply:
        """Send a request. Raises ``Unreachable`` if no part of an answer has come.

        If the server has closed a persistent connection meanwhile, a new one is opened.
        """
        until = asyncio.get_running_loop().time() + self._within
        while self._kept:
            connection = self._kept.pop()
            with contextlib.suppress(Unreachable):
                return await self._ask(connection, inquiry, until)
        return await self._ask(await self._connect(), inquiry, until)

    def close(self) -> None:
        """Close the connections that are not in use."""
        while self._kept:
            self._kept.pop().close()

    async def _connect(self) -> _Connection:
        opening = asyncio.open_connection(self.host, self.port, ssl=self.tls)
        try:
            reader, writer = await asyncio.wait_for(opening, _CONNECT)
        except (OSError, TimeoutError) as error:
            raise Unreachable(f"{self.url}: {error}") from error
        connection = _Connection(reader, writer, f"{host_in_url(self.host)}:{self.port}".encode())
        if self._token:
            try:
                await self._check(connection)
            except BaseException:
                connection.close()
                raise
        return connection

    async def _check(self, connection: _Connection) -> None:
        """Raises ``Unreachable`` where the server is not the gateway, before it gets any data."""
        challenge, until = addressbook.fresh(), asyncio.get_running_loop().time() + _CONNECT
        inquiry = UpstreamRequest(
            "GET", addressbook.PLACE, [(addressbook.CHALLENGE.encode(), challenge.encode())], b""
        )
        said = b""
        try:
            answer = await connection.ask(inquiry, until)
            async for part in connection.content():
                said += part
                if len(said) > _LARGEST_PROOF:
                    break
        except CutOff as error:
            raise Unreachable(f"{self.url}: {error}") from error
        shown = said.decode("latin-1") if answer.status == 200 and said.isascii() else None
        proven = addressbook.proves(self._token, addressbook.gateway_at(self.url), challenge, shown)
        if not (proven and connection.reusable()):
            raise Unreachable(f"{self.url}: the server there is not the gateway that the state directory names")

    async def _ask(self, connection: _Connection, inquiry: UpstreamRequest, until: float) -> Reply:
        try:
            answer = await connection.ask(inquiry, until)
        except BaseException:
            connection.close()
            raise
        headers = [(name, value) for name, value in answer.headers if name.lower() not in _HOP]
        whole = b"".join(answer.parts) if answer.complete else None
        close = lambda: self._put_back(connection)  # noqa: E731 - of this connection
        return Reply(answer.status, headers, connection.content(), close, whole)

    def _put_back(self, connection: _Connection) -> None:
        if connection.reusable() and len(self._kept) < _MOST_KEPT:
            self._kept.append(connection)
        else:
            connection.close()


class _UpstreamAnswer:
    """The parser state of one answer; httptools calls its methods."""

    def __init__(self, method: str) -> None:
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.parts: deque[bytes] = deque()
        self.begun = self.complete = False
        self._head = 0
        self.keeps_connection = False
        """Whether another request may follow on the connection."""
        self._bodiless = method == "HEAD"
        self._parser = httptools.HttpResponseParser(self)

    def feed(self, data: bytes) -> None:
        """Parse data. Raises ``CutOff`` where it is invalid."""
        if self.complete:
            raise CutOff("data follows the end of the answer")
        self._head += 0 if self.begun else len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            raise CutOff(f"invalid HTTP: {error}") from error
        if not self.begun and self._head > _LARGEST_HEAD:
            raise CutOff("the head of the answer is too large")

    def end(self) -> None:
        """The connection has ended, which ends some answers. Raises ``CutOff`` where it is too early."""
        framed = any(name.lower() in (b"content-length", b"transfer-encoding") for name, _ in self.headers)
        if not self.begun or framed:
            raise CutOff("the connection was closed")
        self.complete = True

    def on_message_begin(self) -> None:
        """Status of this answer, or of an interim one."""
        self.headers = []

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called for each header."""
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Called at the end of the head."""
        self.status = self._parser.get_status_code()
        self.begun = self.status >= 200
        self.complete = self.begun and self._bodiless

    def on_body(self, body: bytes) -> None:
        """Called for each part of the body."""
        self.parts.append(body)

    def on_message_complete(self) -> None:
        """End of the answer."""
        self.complete = self.begun
        self.keeps_connection = self.complete and not self._bodiless and bool(self._parser.should_keep_alive())


class _Connection:
    """HTTP/1.1, one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: bytes) -> None:
        self._reader, self._writer, self._host = reader, writer, host
        self._answer = _UpstreamAnswer("")
        self._until = 0.0

    async def ask(self, inquiry: UpstreamRequest, until: float) -> _UpstreamAnswer:
        """Send a request; returns when the head has come. All of it must come before ``until`` (loop time).

        Raises ``Unreachable``.
        """
        self._answer, self._until = _UpstreamAnswer(inquiry.method), until
        try:
            self._writer.write(_encoded(inquiry, self._host))
            async with asyncio.timeout_at(until):
                await self._writer.drain()
            while not self._answer.begun:
                await self._read()
        except (OSError, CutOff) as error:
            raise Unreachable(f"{self._host.decode()}: {error}") from error
        return self._answer

    async def content(self) -> AsyncIterator[bytes]:
        """Read data. Raises ``CutOff``."""
        answer = self._answer
        while True:
            while answer.parts:
                yield answer.parts.popleft()
            if answer.complete:
                return
            try:
                await self._read()
            except OSError as error:
                raise CutOff(str(error)) from error

    def reusable(self) -> bool:
        """Whether the answer is complete and the server keeps the connection."""
        return self._answer.keeps_connection and not self._reader.at_eof()

    def close(self) -> None:
        """Close the connection without waiting."""
        self._writer.transport.abort()

    async def _read(self) -> None:
        async with asyncio.timeout_at(self._until):
            data = await self._reader.read(_CHUNK)
        if data:
            self._answer.feed(data)
        else:
            self._answer.end()


def _encoded(inquiry: UpstreamRequest, host: bytes) -> bytes:
    """The bytes of a request. Raises ``ValueError`` where they could be parsed differently."""
    lines = [f"{inquiry.method} {inquiry.target} HTTP/1.1".encode("latin-1"), b"Host: " + host]
    lines += [name + b": " + value for name, value in inquiry.headers if name.lower() not in _ANEW]
    lines.append(b"Content-Length: %d" % len(inquiry.body))
    if lines[0].count(b" ") != 2 or any(b"\r" in line or b"\n" in line for line in lines):
        raise ValueError(f"invalid target {inquiry.target!r}")
    return b"\r\n".join((*lines, b"", inquiry.body))

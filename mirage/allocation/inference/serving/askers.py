"""One and the same request again and again, at as little cost as can be: what is measured is who answers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    import ssl

    from mirage.allocation.inference.serving.upstream import Inquiry

_END = b"\r\n\r\n"
_LENGTH = b"content-length"
_LAST_CHUNK = b"0\r\n\r\n"


def encode(inquiry: Inquiry, host: str) -> bytes:
    """The request as it goes over the wire."""
    lines = [f"{inquiry.method} {inquiry.target} HTTP/1.1".encode(), b"Host: " + host.encode()]
    lines += [name + b": " + value for name, value in inquiry.headers]
    lines.append(b"Content-Length: " + str(len(inquiry.body)).encode())
    return b"\r\n".join(lines) + _END + inquiry.body


class Askers:
    """Connections that are kept; a new one wherever none is free."""

    def __init__(self, host: str, port: int, tls: ssl.SSLContext | None, request: bytes) -> None:
        self._host, self._port, self._tls, self._request = host, port, tls, request
        self._free: list[_Asker] = []

    async def ask(self) -> tuple[int, dict[bytes, bytes]]:
        """Status and headers. Raises ``OSError`` where no answer comes."""
        asker = self._free.pop() if self._free else None
        if asker is None or asker.closed:
            loop = asyncio.get_running_loop()
            _, asker = await loop.create_connection(_Asker, self._host, self._port, ssl=self._tls)
        try:
            answer = await asker.ask(self._request)
        except BaseException:
            asker.close()
            raise
        self._free.append(asker)
        return answer

    def close(self) -> None:
        """Those that nobody uses."""
        for asker in self._free:
            asker.close()


class _Asker(asyncio.Protocol):
    """One connection: one request at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[tuple[int, dict[bytes, bytes]]] | None = None
        self._held = b""
        self.closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ready to ask."""
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """By the server, or by us."""
        self.closed = True
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(exc or ConnectionResetError("closed without an answer"))

    def ask(self, request: bytes) -> asyncio.Future[tuple[int, dict[bytes, bytes]]]:
        """Send it."""
        assert self._transport is not None
        self._held, self._answer = b"", asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return self._answer

    def data_received(self, data: bytes) -> None:
        """Until the whole body is there."""
        self._held += data
        head, found, body = self._held.partition(_END)
        if not found or self._answer is None or self._answer.done():
            return
        status, *lines = head.split(b"\r\n")
        pairs = (line.partition(b":") for line in lines)
        headers = {name.lower(): value.strip() for name, _, value in pairs}
        if _is_whole(headers, body):
            self._answer.set_result((int(status.split()[1]), headers))

    def close(self) -> None:
        """At once."""
        if self._transport is not None:
            self._transport.abort()


def _is_whole(headers: dict[bytes, bytes], body: bytes) -> bool:
    if b"chunked" in headers.get(b"transfer-encoding", b""):
        return body.endswith(_LAST_CHUNK)
    return len(body) >= int(headers.get(_LENGTH, 0))

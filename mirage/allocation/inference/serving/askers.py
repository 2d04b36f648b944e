"""Load clients: repeat one request at the least possible CPU cost, to measure the server and not the client."""

from __future__ import annotations

import asyncio
import select
import selectors
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    import ssl

    from mirage.allocation.inference.serving.upstream import Inquiry

_END = b"\r\n\r\n"
_LENGTH = b"content-length"
_LAST_CHUNK = b"0\r\n\r\n"
PATIENCE = 60.0
_LOOK = 0.01
_FAILED = 0
"""Status of a request without an answer."""


@dataclass(frozen=True, slots=True)
class Told:
    """The result of one request."""

    due: float
    lag: float
    """Seconds by which the load client sent it too late."""
    seconds: float
    """Seconds from its due time to its answer."""
    status: int
    queued: float
    """Seconds that it waited for a unit, as reported by the gateway."""
    served: float
    """Seconds that the worker took, as reported by the gateway."""


def encode(inquiry: Inquiry, host: str) -> bytes:
    """The bytes of the request."""
    lines = [f"{inquiry.method} {inquiry.target} HTTP/1.1".encode(), b"Host: " + host.encode()]
    lines += [name + b": " + value for name, value in inquiry.headers]
    lines.append(b"Content-Length: " + str(len(inquiry.body)).encode())
    return b"\r\n".join(lines) + _END + inquiry.body


class _FineSelector(selectors.EpollSelector):
    """A selector with precise timeouts: ``epoll_wait`` sleeps for whole milliseconds, ``select`` does not."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait for events, with a precise timeout."""
        if timeout is None or timeout > 0:
            select.select([self.fileno()], (), (), timeout)
        return super().select(0)


def fine_loop() -> asyncio.AbstractEventLoop:
    """An event loop whose timers are accurate to about 50 microseconds."""
    return asyncio.SelectorEventLoop(_FineSelector())


class Askers:
    """Persistent connections; a new one is opened where none is free."""

    def __init__(self, host: str, port: int, tls: ssl.SSLContext | None, request: bytes) -> None:
        self.told = list[Told]()
        self._host, self._port, self._tls, self._request = host, port, tls, request
        self._free: list[_Asker] = []
        self._busy = set[_Asker]()
        self._connecting = set[asyncio.Task[None]]()

    def ask(self, due: float) -> None:
        """Send a request; ``told`` receives the result."""
        while self._free:
            asker = self._free.pop()
            if not asker.closed:
                self._busy.add(asker)
                asker.ask(self._request, due)
                return
        task = asyncio.get_running_loop().create_task(self._ask_anew(due))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    async def finish(self) -> list[Told]:
        """Wait for all results; requests that take too long have failed."""
        while self._connecting or self._busy:
            await asyncio.sleep(_LOOK)
            self.give_up(monotonic() - PATIENCE)
        told, self.told = self.told, []
        return told

    def give_up(self, before: float) -> None:
        """The results of requests that were due before this time."""
        for asker in [asker for asker in self._busy if asker.due < before]:
            asker.close()

    def close(self) -> None:
        """Close the connections that are not in use."""
        for asker in self._free:
            asker.close()

    def answered(self, asker: _Asker, told: Told) -> None:
        """Record the result of a request."""
        self.told.append(told)
        self._busy.discard(asker)
        if not asker.closed:
            self._free.append(asker)

    async def _ask_anew(self, due: float) -> None:
        loop = asyncio.get_running_loop()
        connecting = loop.create_connection(lambda: _Asker(self), self._host, self._port, ssl=self._tls)
        try:
            _, asker = await asyncio.wait_for(connecting, PATIENCE)
        except (OSError, TimeoutError):
            self.told.append(_nothing(due, monotonic()))
        else:
            self._busy.add(asker)
            asker.ask(self._request, due)


class _Asker(asyncio.Protocol):
    """One connection with one request at a time."""

    def __init__(self, askers: Askers) -> None:
        self.due = self._sent = 0.0
        self.closed = False
        self._askers = askers
        self._transport: asyncio.Transport | None = None
        self._held, self._waits = b"", False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected: ready to send."""
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Closed by the server or by this client."""
        del exc
        self.closed = True
        if self._waits:
            self._waits = False
            self._askers.answered(self, _nothing(self.due, self._sent))

    def ask(self, request: bytes, due: float) -> None:
        """Write a request to the connection."""
        assert self._transport is not None
        self._held, self._waits, self.due, self._sent = b"", True, due, monotonic()
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        """Collect data until the whole body is there."""
        now = monotonic()
        self._held += data
        head, found, body = self._held.partition(_END)
        if not found or not self._waits:
            return
        try:
            told = self._read(head, body, now)
        except (ValueError, IndexError):  # no HTTP: counts as no answer
            self.close()
            return
        if told is not None:
            self._waits = False
            self._askers.answered(self, told)

    def _read(self, head: bytes, body: bytes, now: float) -> Told | None:
        """Parse the head; ``None`` where it is incomplete. Raises ``ValueError`` and ``IndexError``."""
        status, *lines = head.split(b"\r\n")
        pairs = (line.partition(b":") for line in lines)
        headers = {name.lower(): value.strip() for name, _, value in pairs}
        if not _is_whole(headers, body):
            return None
        queued, served = (
            float(headers.get(b"x-mirage-%s-ms" % name, 0)) / 1000 for name in (b"queue", b"service")
        )
        return Told(self.due, self._sent - self.due, now - self.due, int(status.split()[1]), queued, served)

    def close(self) -> None:
        """Close the connection without waiting for an answer."""
        if self._transport is not None:
            self._transport.abort()


def _nothing(due: float, sent: float) -> Told:
    return Told(due, sent - due, monotonic() - due, _FAILED, 0.0, 0.0)


def _is_whole(headers: dict[bytes, bytes], body: bytes) -> bool:
    if b"chunked" in headers.get(b"transfer-encoding", b""):
        return body.endswith(_LAST_CHUNK)
    return len(body) >= int(headers.get(_LENGTH, 0))

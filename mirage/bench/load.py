"""Requests at a steady rate over a Unix socket, whether or not answers come."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection

_CONNECTIONS = 16
_WARM = 0.3
"""Seconds that do not count: connections are made."""
_END = b"\r\n\r\n"
_LENGTH = b"\r\ncontent-length:"
_PATIENCE = 30.0


@dataclass(slots=True)
class Load:
    """Latencies and failures of the requests in one measurement."""

    seconds: list[float] = field(default_factory=list)
    """Each request's, from when it was due."""
    failed: int = 0
    """Not answered with 200, or not at all."""
    bytes: int = 0
    """Of one answer's body."""
    length: float = 0.0
    """Seconds in which they were due."""


def run_load(path: str, rate: int, parent: Connection) -> None:
    """A process's main function: ``parent`` sends a target, which is requested until ``parent`` sends again.

    ``parent`` receives ``None`` once requests count, then a ``Load``; an empty target ends the process.
    """
    while target := parent.recv():
        asyncio.run(_run(path, f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode(), rate, parent))


async def _run(path: str, request: bytes, rate: int, parent: Connection) -> None:
    loop, told = asyncio.get_running_loop(), asyncio.Event()
    source = _Source(request, rate)
    askers = [
        await loop.create_unix_connection(lambda: _Asker(source.answered), path) for _ in range(_CONNECTIONS)
    ]
    source.start([asker for _, asker in askers])
    await asyncio.sleep(_WARM)
    source.load, began = Load(), loop.time()
    parent.send(None)
    loop.add_reader(parent.fileno(), told.set)
    await told.wait()
    loop.remove_reader(parent.fileno())
    parent.recv()
    source.load.length = loop.time() - began
    await source.drain()
    for transport, _ in askers:
        transport.close()
    parent.send(source.load)


class _Source:
    """Has a request ready each ``1 / rate`` seconds, for whichever connection is free."""

    def __init__(self, request: bytes, rate: int) -> None:
        self.load = Load()
        self._request, self._interval = request, 1 / rate
        self._loop = asyncio.get_running_loop()
        self._free: deque[_Asker] = deque()
        """Taken in turn: one that is idle for seconds is closed by the server."""
        self._due: deque[tuple[float, Load]] = deque()
        self._open = 0
        self._next: asyncio.TimerHandle | None = None

    def start(self, askers: list[_Asker]) -> None:
        """Add free connections and start the periodic requests."""
        self._free.extend(askers)
        self._schedule(self._loop.time())

    async def drain(self) -> None:
        """No further requests; those that are open are waited for."""
        assert self._next is not None
        self._next.cancel()
        end = self._loop.time() + _PATIENCE
        while self._open and self._loop.time() < end:
            await asyncio.sleep(0.01)
        self.load.failed += self._open

    def answered(self, asker: _Asker, size: int, *, good: bool) -> None:
        """The request that ``asker`` had is through."""
        instant, load = asker.asked
        load.seconds.append(self._loop.time() - instant)
        load.failed += not good
        load.bytes = size
        self._open -= 1
        self._free.append(asker)
        self._send()

    def _schedule(self, instant: float) -> None:
        self._next = self._loop.call_at(instant, self._is_due, instant)

    def _is_due(self, instant: float) -> None:
        self._due.append((instant, self.load))
        self._open += 1
        self._schedule(instant + self._interval)
        self._send()

    def _send(self) -> None:
        while self._due and self._free:
            self._free.popleft().ask(self._request, self._due.popleft())


class _Asker(asyncio.Protocol):
    """One connection: one request at a time."""

    def __init__(self, answered: Callable[..., None]) -> None:
        self.asked: tuple[float, Load] = (0.0, Load())
        self._answered = answered
        self._transport: asyncio.WriteTransport | None = None
        self._head = b""
        self._size = self._left = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport for the requests to come."""
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport

    def ask(self, request: bytes, asked: tuple[float, Load]) -> None:
        """Send the request, due at the time and counted in the load of ``asked``."""
        assert self._transport is not None
        self.asked, self._head, self._left = asked, b"", 0
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        """Count down to the end of the answer, whose length its head says."""
        if self._left:
            self._left -= len(data)
        else:
            self._head += data
            head, found, body = self._head.partition(_END)
            if not found:
                return
            self._size = int(head.lower().partition(_LENGTH)[2].partition(b"\r\n")[0])
            self._left = self._size - len(body)
        if not self._left:
            self._answered(self, self._size, good=self._head.startswith(b"HTTP/1.1 200 "))

"""HTTP with bounds on what one connection, and one client, can make a server hold, and on its pace.

uvicorn bounds neither the headers of a request nor the requests of a connection that wait for their turn, and it
keeps an answer until the client has read it.

Answers that count against no client's rate limit (rejections, health, static files) cost about as much time as any
other. Such an answer waits until it is due; the next request of its connection is not begun before, so that a
client that floods takes a small share of the event loop. An answer within the pace goes out immediately.
"""

from __future__ import annotations

import asyncio
import logging
import select
import time
from collections import Counter
from socket import AF_UNIX
from typing import TYPE_CHECKING, ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from mirage.domain.texts import client_network

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, MutableMapping
    from typing import Any

_FAULTS = logging.getLogger(__name__)
# uvicorn warns of each request that is malformed: a client can send any number of them.
_FAULTS.setLevel(logging.ERROR)

MOST_HEADERS = 100
"""Headers and trailers of one request."""
_AROUND = 4
"""Bytes of a header next to its name and value."""
MOST_IN_LINE = 32
"""Requests that a client may send before it has the answer to the first."""
READ_WITHIN = 30.0
"""Seconds within which a client has to read some of an answer that it has been sent."""
_LEAST_READ = 16 << 10
"""Bytes that count as some."""
LARGEST_DISCARDED = 64 << 20
"""Bytes beyond the bound of a body that are read and thrown away, so that the client can read the answer: a
connection that is closed with bytes unread is reset."""
LEAVING_SEEN_WITHIN = 1.0
"""Seconds until it is seen that a client has left of which no more is read just now."""
_OF_A_BODY = frozenset({b"content-length", b"transfer-encoding"})
PRESENCE = "mirage.presence"
"""Key of the client's ``ClientPresence`` in a request's scope."""


class ClientPresence:
    """Whether the client of a connection is still there. For one event loop."""

    def __init__(self, pause: Callable[[], None] = lambda: None) -> None:
        """``pause`` ends the reading from the client until the request that is answered now is answered."""
        self.left = False
        self.held = False
        """Whether the answer to its request is decided and waits until it is due."""
        self._pause = pause
        self._watching: set[Callable[[], None]] = set()

    def hold(self) -> None:
        """The answer is decided and waits until it is due: nothing more is read, or kept of the request."""
        self.held = True
        self._pause()

    def watch(self, leave: Callable[[], None]) -> None:
        """Call ``leave`` once when the client leaves; immediately where it has left."""
        if self.left:
            leave()
        else:
            self._watching.add(leave)

    def unwatch(self, leave: Callable[[], None]) -> None:
        """Remove ``leave``: it is not called any more."""
        self._watching.discard(leave)

    def end(self) -> None:
        """Note that the client has left, and call all watchers once."""
        self.left = True
        while self._watching:
            self._watching.pop()()


class BoundedProtocol(HttpToolsProtocol):
    """One HTTP/1.1 connection with bounds on size, number and time of its requests."""

    longest_headers: ClassVar[int] = 16 << 10
    """Bytes of a request's address, headers and trailers; and bytes that may come and complete nothing."""
    made = 0.0
    """When the connection was made, by the event loop's clock."""
    origin = ""
    """Network that counts as one client; determined once, since each new connection checks all others."""
    in_headers = True
    """Whether a request's headers are not complete, or no request has begun."""
    _fault = ""
    """Why the request is rejected; empty: the parser's own reason."""
    _size = 0
    """Bytes of this request's address and headers."""
    _lines = 0
    _idle = 0
    """Bytes since anything was complete."""
    _moved = False
    """Whether something was completed by the bytes that have just come."""
    _unread = 0
    """Bytes of answers that the client had not read when that was last checked."""
    _reading: asyncio.TimerHandle | None = None
    _leaving: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the clock of the headers and apply the bounds on connections."""
        super().connection_made(transport)
        self.logger = _FAULTS
        self.origin = client_network(self.client[0]) if self.client else ""
        self.made = self.loop.time()
        self.presence = ClientPresence(self._hold)
        self._cycles: list[RequestResponseCycle] = []

    def connection_lost(self, exc: Exception | None) -> None:
        """Notify every request of the connection; uvicorn notifies only the last one, and the first runs."""
        self._stop_reading_clock()
        if self._leaving is not None:
            self._leaving.cancel()
        for cycle in self._cycles:
            if not cycle.response_complete:
                cycle.disconnected = True
            cycle.message_event.set()
        self._cycles = []
        super().connection_lost(exc)
        self.presence.end()

    @property
    def awaits_client(self) -> bool:
        """Whether no request waits for what it asks, so that nothing is lost where the connection ends."""
        if self.presence.held or self.cycle is None or self.cycle.response_complete:
            return True
        return bool(getattr(self.cycle, "more_body", False))

    def make_room(self, most: int) -> None:
        """If there are more connections, end an idle one: the oldest of the client that has the most."""
        if len(self.connections) <= most:
            return
        others = [other for other in self.connections if isinstance(other, BoundedProtocol) and other is not self]
        # One that was ended a moment ago is still among them, and must not be ended in the place of another.
        waiting = [other for other in others if other.awaits_client and not other.transport.is_closing()]
        if waiting:
            heaviest, _ = Counter(other.origin for other in waiting).most_common(1)[0]
            its = (other for other in waiting if other.origin == heaviest)
            min(its, key=lambda other: other.made).transport.abort()

    def data_received(self, data: bytes) -> None:
        """Take what comes, up to the bounds."""
        self._moved = False
        super().data_received(data)
        self._idle = 0 if self._moved else self._idle + len(data)
        if self._idle > self.longest_headers and not self.transport.is_closing():
            self.send_400_response("The data is not an HTTP request, or a request with too much data around it.")
        if self._leaving is None:
            self._await_leaving()

    def _await_leaving(self) -> None:
        """Look for the end of a connection of which no more is read, behind a request in line or a long body."""
        self._leaving = None
        if self.flow.read_paused and not self.transport.is_closing():
            if has_left(self.transport.get_extra_info("socket")):
                self.transport.abort()
            else:
                self._leaving = self.loop.call_later(LEAVING_SEEN_WITHIN, self._await_leaving)

    def _hold(self) -> None:
        """Of bodies only what follows in line is kept."""
        running = next((cycle for cycle in self._cycles if not cycle.response_complete), None)
        if running is not None:
            running.body.clear()
        self._stop_reading()
        if self._leaving is None:
            self._await_leaving()

    def send_400_response(self, msg: str) -> None:
        """Answer bytes that are no request, unless that would look like an earlier answer; then stop reading."""
        if self.cycle is None or self.cycle.response_complete:
            super().send_400_response(self._fault or msg)
        else:
            self.transport.close()

    # What the parser finds

    def on_message_begin(self) -> None:
        """Begin to count the headers of a new request."""
        self.in_headers, self._size, self._lines = True, 0, 0
        super().on_message_begin()
        self.scope[PRESENCE] = self.presence  # type: ignore[literal-required]

    def on_url(self, url: bytes) -> None:
        """Count a part of the request target against the bound."""
        self._count(len(url), 0)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """One before the body; behind it, where the application has seen the others already, none counts."""
        self._count(len(name) + len(value) + _AROUND, 1)
        if self.in_headers:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The request can be answered, when its turn comes."""
        self.end_headers()
        if len(self.pipeline) >= MOST_IN_LINE:
            raise ValueError("too many requests at the same time")
        super().on_headers_complete()
        self._cycles = [cycle for cycle in self._cycles if not cycle.response_complete] + [self.cycle]

    def end_headers(self) -> None:
        """Begin the body. Raises ``ValueError``, which the parser passes on."""
        self._moved, self.in_headers = True, False
        if self.parser.should_upgrade() and any(
            name in _OF_A_BODY and size != b"0" for name, size in self.headers
        ):
            # The parser reads nothing after such headers: the body would seem to be empty.
            self._fault = "A request with a body cannot ask for another protocol (header Upgrade)."
            raise ValueError(self._fault)

    def on_body(self, body: bytes) -> None:
        """Note that the body makes progress."""
        self._moved = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Note that the request is complete."""
        self._moved = True
        super().on_message_complete()

    def _count(self, size: int, lines: int) -> None:
        """Count bytes and lines of a request, in parts of any size. Raises ``ValueError`` beyond a bound."""
        self._size, self._lines = self._size + size, self._lines + lines
        if self._size > self.longest_headers or self._lines > MOST_HEADERS:
            raise ValueError("too many headers, or too long ones")

    # What the client reads

    def pause_writing(self) -> None:
        """The client does not read: take no more from it, and do not wait for long."""
        super().pause_writing()
        self._stop_reading()
        self._unread = self.transport.get_write_buffer_size()
        self._reading = self.loop.call_later(READ_WITHIN, self._check_reading)

    def resume_writing(self) -> None:
        """Stop the reading clock, because the client has read, and continue."""
        self._stop_reading_clock()
        super().resume_writing()
        if not self.transport.is_closing():
            self.flow.resume_reading()

    def on_response_complete(self) -> None:
        """An answer is written, which does not mean that it is read."""
        super().on_response_complete()
        if self.flow.write_paused:
            self._stop_reading()

    def _stop_reading(self) -> None:
        if not self.transport.is_closing():
            self.flow.pause_reading()

    def _check_reading(self) -> None:
        left = self.transport.get_write_buffer_size()
        if self._unread - left < _LEAST_READ:
            self.transport.abort()
        else:
            self._unread = left
            self._reading = self.loop.call_later(READ_WITHIN, self._check_reading)

    def _stop_reading_clock(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None


def has_left(connection: socket.socket) -> bool:
    """Whether the other end has closed the connection, also where what it sent is not read yet."""
    poll = select.poll()
    # Only a Unix socket distinguishes an end that sends no more from a closed one; servers answer neither.
    poll.register(connection.fileno(), 0 if connection.family == AF_UNIX else select.POLLRDHUP)
    return bool(poll.poll(0))


_MOST_CLIENTS = 10_000
"""Clients that are remembered; beyond, those are forgotten whose answers are due soonest."""


class AnswerPace:
    """When the next answer to each client is due. For one event loop."""

    def __init__(self, rate: float, burst: int, longest: float, now: Callable[[], float] = time.monotonic) -> None:
        """``rate`` answers per second, bursts of ``burst``; no answer waits for more than ``longest`` seconds."""
        self._step, self._ahead, self._longest, self._now = 1 / rate, burst / rate, longest, now
        self._full: dict[str, float] = {}
        """When each client may have a whole burst again."""

    def delay(self, client: str) -> float:
        """Count an answer to ``client``; the seconds until it is due."""
        now = self._now()
        if client not in self._full and len(self._full) >= _MOST_CLIENTS:
            self._forget()
        full = max(self._full.get(client, now), now) + self._step
        self._full[client] = full = min(full, now + self._ahead + self._longest)
        return max(0.0, full - now - self._ahead)

    async def hold(self, client: str, scope: MutableMapping[str, Any]) -> None:
        """Count the answer to the request of ``scope``; return when it is due, or its client has left."""
        delay, presence = self.delay(client), scope.get(PRESENCE)
        if not delay:
            return
        await _wait(delay, presence if isinstance(presence, ClientPresence) else ClientPresence())

    def _forget(self) -> None:
        by_time = sorted(self._full.items(), key=lambda known: known[1])
        self._full = dict(by_time[_MOST_CLIENTS // 2 :])


async def _wait(delay: float, presence: ClientPresence) -> None:
    loop = asyncio.get_running_loop()
    due = loop.create_future()

    def end() -> None:
        if not due.done():
            due.set_result(None)

    timer = loop.call_later(delay, end)
    presence.hold()
    presence.watch(end)
    try:
        await due
    finally:
        timer.cancel()
        presence.unwatch(end)
        presence.held = False

"""Event feed: passes journal entries and cycles from the loop's thread to listeners, in bounded buffers.

The loop never waits. A listener that is too slow is disconnected, and reconnects from the last entry that it
received.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections import Counter, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirage.domain.errors import MirageError
from mirage.domain.shares import find_displaced

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirage.control.status import Status
    from mirage.domain.chain import ChainId
    from mirage.domain.journal import Entry, EntryKind
    from mirage.store.journal import JournalLine

_LOG = logging.getLogger(__name__)

MOST_WAITING = 2_000
"""Waiting items per listener."""
MOST_OF_ONE = 8
"""Streams per user."""
MOST_OF_ALL = 64
"""Streams of all users. Beyond, a user with fewer streams displaces one of the user with the most."""


class TooManyListeners(MirageError):
    """Too many listeners, of one user or of all; each takes memory and a connection."""


@dataclass(frozen=True, slots=True)
class Interest:
    """What a listener may receive, and requests."""

    name: str
    every: bool = False
    """Whether to include all chains and the daemon, for administrators; otherwise only own chains."""
    chain: ChainId | None = None
    """Only this chain; ``None``: all."""
    kinds: frozenset[EntryKind] = frozenset()
    """Only these kinds of entries; empty: all."""

    def covers(self, entry: Entry, owner: str) -> bool:
        """Return whether an entry about a chain of ``owner`` is included."""
        allowed = self.every or (entry.chain is not None and owner == self.name)
        wanted = self.chain in (None, entry.chain) and (not self.kinds or entry.kind in self.kinds)
        return allowed and wanted


class Listener:
    """A listener, in the event loop that created it."""

    def __init__(self, interest: Interest) -> None:
        self.interest = interest
        self._waiting: deque[JournalLine | Status] = deque()
        self._awake = asyncio.Event()
        self._signalled = False
        self._over = False
        self._loop = asyncio.get_running_loop()

    async def next(self, seconds: float) -> list[JournalLine | Status] | None:
        """Wait up to ``seconds`` for items and return them; ``None`` once the feed has ended."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._awake.wait(), seconds)
        self._awake.clear()
        self._signalled = False
        items = [self._waiting.popleft() for _ in range(len(self._waiting))]
        return None if self._over and not items else items

    def offer(self, item: JournalLine | Status) -> None:
        """Add an item, or end a listener that is too slow. Any thread."""
        if self._over:
            return
        if len(self._waiting) >= MOST_WAITING:
            _LOG.info("event=slow_listener_disconnected user=%s", self.interest.name)
            self.end()
            return
        self._waiting.append(item)
        self._wake()

    def end(self) -> None:
        """End after the items that wait now. Any thread."""
        self._over = True
        self._wake()

    def _wake(self) -> None:
        if not self._signalled:
            self._signalled = True
            with contextlib.suppress(RuntimeError):  # its event loop is closed
                self._loop.call_soon_threadsafe(self._awake.set)


class Feed:
    """All listeners. The loop's thread adds items, the server's thread reads them."""

    def __init__(self, owner_of: Callable[[ChainId], str]) -> None:
        """``owner_of``: returns an empty text for an unknown chain; callable from any thread."""
        self._owner_of = owner_of
        self._listeners: set[Listener] = set()
        self._lock = threading.Lock()
        self._failed = False

    def listen(self, interest: Interest) -> Listener:
        """Return a new listener of the current event loop. Raises ``TooManyListeners``."""
        name = interest.name
        with self._lock:
            count = Counter(listener.interest.name for listener in self._listeners)
            if count[name] >= MOST_OF_ONE:
                raise TooManyListeners(
                    f"{name} has {count[name]} event streams open, the maximum; close one first"
                )
            if len(self._listeners) >= MOST_OF_ALL:
                self._make_room(count, name)
            listener = Listener(interest)
            self._listeners.add(listener)
        return listener

    def _make_room(self, count: Counter[str], name: str) -> None:
        heaviest = find_displaced(count, name)
        if heaviest is None:
            raise TooManyListeners(f"{len(self._listeners)} event streams are open, the maximum; retry later")
        displaced = next(listener for listener in self._listeners if listener.interest.name == heaviest)
        self._listeners.discard(displaced)
        displaced.end()

    def leave(self, listener: Listener) -> None:
        """Remove a listener from the feed."""
        with self._lock:
            self._listeners.discard(listener)

    def stored(self, line: JournalLine) -> None:
        """Pass on a stored journal entry."""
        chain = line.entry.chain
        owner = self._owner_of(chain) if chain is not None and self._listeners else ""
        self._tell(line, lambda listener: listener.interest.covers(line.entry, owner))

    def cycled(self, status: Status) -> None:
        """Pass on the status after a cycle."""
        self._tell(status, lambda listener: True)

    def close(self) -> None:
        """End every stream."""
        for listener in self._present():
            listener.end()

    def _tell(self, item: JournalLine | Status, concerns: Callable[[Listener], bool]) -> None:
        """Errors of a listener must not reach the loop; the first one is logged."""
        for listener in self._present():
            try:
                if concerns(listener):
                    listener.offer(item)
            except Exception:
                if not self._failed:
                    self._failed = True
                    _LOG.exception(
                        "internal error (bug in Mirage): an event stream failed; report it with the traceback"
                    )

    def _present(self) -> tuple[Listener, ...]:
        with self._lock:
            return tuple(self._listeners)

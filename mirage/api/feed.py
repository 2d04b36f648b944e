"""From the loop's thread to whoever listens: journal lines and cycles, through bounded buffers.

The loop never waits: a listener that does not keep up is told nothing more, and asks again from the last line that
it has.
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
"""Items that a listener may be behind."""
MOST_OF_ONE = 8
"""Streams of one user."""
MOST_OF_ALL = 64
"""Streams of all users; once all are open, a user with fewer streams takes the place of the user with the most."""


class TooManyListeners(MirageError):
    """Every listener costs memory and a connection; the text says whose there are too many of."""


@dataclass(frozen=True, slots=True)
class Interest:
    """What one who listens may hear and wants to."""

    name: str
    every: bool = False
    """Of all chains and of the service itself, for administrators; else of one's own."""
    chain: ChainId | None = None
    """Of this one only."""
    kinds: frozenset[EntryKind] = frozenset()
    """Of these only; empty: of all."""

    def covers(self, entry: Entry, owner: str) -> bool:
        """Whether an entry about a chain of ``owner`` is to be told."""
        allowed = self.every or (entry.chain is not None and owner == self.name)
        wanted = self.chain in (None, entry.chain) and (not self.kinds or entry.kind in self.kinds)
        return allowed and wanted


class Listener:
    """One end of the feed, for the event loop that it was made in."""

    def __init__(self, interest: Interest) -> None:
        self.interest = interest
        self._waiting: deque[JournalLine | Status] = deque()
        self._awake = asyncio.Event()
        self._signalled = False
        self._over = False
        self._loop = asyncio.get_running_loop()

    async def next(self, seconds: float) -> list[JournalLine | Status] | None:
        """What has come in, after waiting so long for the first; ``None``: it is over, nothing more comes."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._awake.wait(), seconds)
        self._awake.clear()
        self._signalled = False
        items = [self._waiting.popleft() for _ in range(len(self._waiting))]
        return None if self._over and not items else items

    def offer(self, item: JournalLine | Status) -> None:
        """Any thread: pass it on; it is over for one that is too far behind."""
        if self._over:
            return
        if len(self._waiting) >= MOST_WAITING:
            _LOG.info("%s listens too slowly: the stream ends, to be asked for again", self.interest.name)
            self.end()
            return
        self._waiting.append(item)
        self._wake()

    def end(self) -> None:
        """Any thread: no more after what waits now."""
        self._over = True
        self._wake()

    def _wake(self) -> None:
        if not self._signalled:
            self._signalled = True
            with contextlib.suppress(RuntimeError):  # its event loop is closed: nobody listens any more
                self._loop.call_soon_threadsafe(self._awake.set)


class Feed:
    """All listeners. The loop's thread tells, the server's thread listens."""

    def __init__(self, owner_of: Callable[[ChainId], str]) -> None:
        """``owner_of``: empty for a chain that is not known; any thread may call it."""
        self._owner_of = owner_of
        self._listeners: set[Listener] = set()
        self._lock = threading.Lock()
        self._failed = False

    def listen(self, interest: Interest) -> Listener:
        """A new listener, within an event loop. Raises ``TooManyListeners``."""
        name = interest.name
        with self._lock:
            count = Counter(listener.interest.name for listener in self._listeners)
            if count[name] >= MOST_OF_ONE:
                raise TooManyListeners(f"{name} listens {count[name]} times already; close a stream first")
            if len(self._listeners) >= MOST_OF_ALL:
                self._make_room(count, name)
            listener = Listener(interest)
            self._listeners.add(listener)
        return listener

    def _make_room(self, count: Counter[str], name: str) -> None:
        heaviest = find_displaced(count, name)
        if heaviest is None:
            raise TooManyListeners(f"{len(self._listeners)} streams are open, which is all that there may be")
        displaced = next(listener for listener in self._listeners if listener.interest.name == heaviest)
        self._listeners.discard(displaced)
        displaced.end()

    def leave(self, listener: Listener) -> None:
        """It listens no more."""
        with self._lock:
            self._listeners.discard(listener)

    def stored(self, line: JournalLine) -> None:
        """A line of the journal is on disk."""
        chain = line.entry.chain
        owner = self._owner_of(chain) if chain is not None and self._listeners else ""
        self._tell(line, lambda listener: listener.interest.covers(line.entry, owner))

    def cycled(self, status: Status) -> None:
        """A cycle has ended."""
        self._tell(status, lambda listener: True)

    def close(self) -> None:
        """End every stream."""
        for listener in self._present():
            listener.end()

    def _tell(self, item: JournalLine | Status, concerns: Callable[[Listener], bool]) -> None:
        """Whatever goes wrong with a listener must not reach the loop; it is said once."""
        for listener in self._present():
            try:
                if concerns(listener):
                    listener.offer(item)
            except Exception:
                if not self._failed:
                    self._failed = True
                    _LOG.exception("a stream failed; a fault of this program, report it")

    def _present(self) -> tuple[Listener, ...]:
        with self._lock:
            return tuple(self._listeners)

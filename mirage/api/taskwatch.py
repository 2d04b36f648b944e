"""Reads task states with bounded waiting and CPU time.

A file system may hang, with all threads that use it. Reading a user's file costs many times the CPU time of
writing it, and all threads of the daemon run one at a time. So the response is cached until the file or the
chain's links change. Each user's files also have a share of CPU time: once that is used up, the cached response
stays.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mirage.api.access.rates import RateLimiter, TooOften
from mirage.api.agentstatus import TaskStatus
from mirage.api.routes.tasks import STALE, tasks_document
from mirage.api.taskfiles import Reading, StateUnseen, read_state
from mirage.backends.file_check import Viewer
from mirage.domain.shares import find_surplus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mirage.api.taskfiles import Seen
    from mirage.domain.chain import ChainId, ChainRecord
    from mirage.domain.job import Seconds

_LOG = logging.getLogger(__name__)

MOST_OWNERS = 64
"""Owners whose files are read at the same time, with one thread each."""
MOST_KEPT = 16 << 20
"""Bytes of all cached responses; beyond, the users with the most lose their oldest."""
_OVERHEAD = 2_000
SHARE, BURST = 50.0, 500
"""CPU milliseconds for the files of one owner: per second, and burst."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A response about the tasks of one chain."""

    body: bytes
    """A ``TasksDocument`` as JSON."""
    read: int = 0
    """Bytes read for it."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """A cached response, and what it is valid for."""

    shown: Shown
    mark: tuple[int, ...]
    record: ChainRecord
    stale_at: float
    """Time from which the response would report a stale state."""
    made: Seconds

    @property
    def size(self) -> int:
        """Approximate memory in bytes."""
        return len(self.shown.body) + _OVERHEAD

    def lasts(self, record: ChainRecord, now: Seconds) -> bool:
        """Return whether the same file would give the same response."""
        return record == self.record and (now > self.stale_at) == (self.made > self.stale_at)


@dataclass(frozen=True, slots=True)
class _PendingLook:
    record: ChainRecord
    now: Seconds
    asked: float
    answer: Future[Shown | TooOften] = field(default_factory=Future)

    @property
    def owner(self) -> str:
        return self.record.chain.owner

    @property
    def chain_id(self) -> ChainId:
        return self.record.chain.chain_id


class TaskWatch:
    """Reads files for many requests: each file once at a time, the files of one owner in sequence.

    A hanging file system blocks one thread per owner with files there. Other users do not wait for it, and a
    repeated request gets a response immediately.
    """

    def __init__(
        self,
        viewer_of: Callable[[str], Viewer] = Viewer.of,
        read: Callable[[str, Viewer, tuple[int, ...] | None], Reading | None] = read_state,
        patience: float = 2.0,
        shares: RateLimiter | None = None,
    ) -> None:
        self._viewer_of, self._read, self._patience = viewer_of, read, patience
        self._lock = threading.Lock()
        self._shares = shares or RateLimiter(SHARE, BURST)
        self._kept: dict[ChainId, _Kept] = {}
        """The oldest first."""
        self._size = 0
        self._lines: dict[str, dict[ChainId, _PendingLook]] = {}
        """By owner: files to read; a thread may be reading the first."""
        self._idle: deque[str] = deque()
        """Owners who wait for a free thread."""
        self._threads = 0

    async def look(self, records: Iterable[ChainRecord], now: Seconds) -> dict[ChainId, Shown | TooOften]:
        """Return the task states of these chains, within the timeout and without a thread of the server.

        ``TooOften``: no cached response, and the owner's share is used up.
        """
        looks = [self._ask(_PendingLook(record, now, time.monotonic())) for record in records]
        waiting = [asyncio.wrap_future(look.answer) for look in looks if not look.answer.done()]
        if waiting:
            await asyncio.wait(waiting, timeout=self._patience)
        return {look.chain_id: self._answer(look) for look in looks}

    def _ask(self, look: _PendingLook) -> _PendingLook:
        with self._lock:
            if (answer := self._without_looking(look)) is not None:
                look.answer.set_result(answer)
                return look
            line = self._lines.get(look.owner)
            if line is not None:
                return line.setdefault(look.chain_id, look)
            self._lines[look.owner] = {look.chain_id: look}
            self._idle.append(look.owner)
            if self._threads >= MOST_OWNERS:
                return look
            self._threads += 1
        threading.Thread(target=self._work, name="tasks", daemon=True).start()
        return look

    def _without_looking(self, look: _PendingLook) -> Shown | TooOften | None:
        """Return the cached response if the owner's share is used up."""
        try:
            self._shares.check(look.owner)
        except TooOften as error:
            kept = self._kept.get(look.chain_id)
            return error if kept is None else kept.shown
        return None

    def _work(self) -> None:
        while (owner := self._next_owner()) is not None:
            while (look := self._first(owner)) is not None:
                with self._lock:
                    answer = self._without_looking(look)
                if answer is None:
                    answer = self._seen(look)
                with self._lock:
                    del self._lines[owner][look.chain_id]
                look.answer.set_result(answer)

    def _next_owner(self) -> str | None:
        with self._lock:
            if self._idle:
                return self._idle.popleft()
            self._threads -= 1
            return None

    def _first(self, owner: str) -> _PendingLook | None:
        with self._lock:
            first = next(iter(self._lines[owner].values()), None)
            if first is None:
                del self._lines[owner]
        return first

    def _seen(self, look: _PendingLook) -> Shown:
        """Return a response in any case: the owner's other chains wait behind it."""
        try:
            return self._looked(look)
        except Exception:
            _LOG.exception("event=task_state_failed chain=%s", look.chain_id)
            why = f"{look.record.chain.tasks_state} could not be shown; see the daemon's log"
            return Shown(_document(look.record, why, look.now))

    def _looked(self, look: _PendingLook) -> Shown:
        with self._lock:
            kept = self._kept.get(look.chain_id)
        began = time.thread_time()
        shown, new = self._shown(look, kept)
        with self._lock:
            self._shares.charge(look.owner, (time.thread_time() - began) * 1_000)
            if new is not kept:
                self._keep(look.chain_id, new)
        return shown

    def _shown(self, look: _PendingLook, kept: _Kept | None) -> tuple[Shown, _Kept | None]:
        """Return the response, and its cache entry."""
        mark = kept.mark if kept is not None and kept.lasts(look.record, look.now) else None
        found = self._found(look, mark)
        if found is None and kept is not None:
            return kept.shown, kept
        seen = found.seen if isinstance(found, Reading) else found or ""
        body = _document(look.record, seen, look.now)
        if not isinstance(found, Reading):
            return Shown(body), None
        stale_at = seen.time + STALE if isinstance(seen, TaskStatus) else float("inf")
        return Shown(body, found.size), _Kept(Shown(body), found.mark, look.record, stale_at, look.now)

    def _found(self, look: _PendingLook, mark: tuple[int, ...] | None) -> Reading | str | None:
        chain = look.record.chain
        try:
            return self._read(chain.tasks_state, self._viewer_of(chain.owner), mark)
        except StateUnseen as unseen:
            return str(unseen)
        except KeyError:
            return f"{chain.owner} is no user of the daemon's machine, so the daemon cannot check the file's owner"
        except Exception:
            _LOG.exception("event=task_state_failed chain=%s", chain.chain_id)
            return f"{chain.tasks_state} could not be read; see the daemon's log"

    def _keep(self, chain_id: ChainId, new: _Kept | None) -> None:
        if (old := self._kept.pop(chain_id, None)) is not None:
            self._size -= old.size
        if new is not None:
            self._kept[chain_id] = new
            self._size += new.size
        if self._size > MOST_KEPT:
            names, held = list(self._kept), [(each.record.chain.owner, each.size) for each in self._kept.values()]
            for position in find_surplus(held, MOST_KEPT * 9 // 10):
                self._size -= self._kept.pop(names[position]).size

    def _answer(self, look: _PendingLook) -> Shown | TooOften:
        if look.answer.done():
            return look.answer.result()
        waited = time.monotonic() - look.asked
        with self._lock:
            idle = look.owner in self._idle
        why = (
            "too many files of other users are being read; their file system may hang"
            if idle
            else f"{look.record.chain.tasks_state}: no answer for {waited:.0f} s; its file system may hang"
        )
        return Shown(_document(look.record, why, look.now))


def _document(record: ChainRecord, seen: Seen, now: Seconds) -> bytes:
    return tasks_document(record, seen, now).model_dump_json().encode()

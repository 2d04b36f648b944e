"""Audit log of requests: every change with user, authentication and result; attempts to access others' chains.

The entry of a change is written before its response is sent, in the caller's thread; that of a rejected request
afterwards, in the background: the response time must not show why a request was rejected.
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass
from threading import Condition, Thread
from typing import TYPE_CHECKING

from mirage.api.access.dependencies import known_caller
from mirage.api.access.rates import RateLimiter, TooOften
from mirage.api.conventions.threads import query
from mirage.domain.errors import StoreUnavailable
from mirage.store.access import AuditEntry

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping, Sequence
    from typing import Any

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from mirage.domain.chain import ChainId
    from mirage.domain.job import Seconds
    from mirage.store.access import AuditLog

_LOG = logging.getLogger(__name__)

MOST_OF_ONE = 200
"""Waiting entries of one user."""
MOST = 4_000
"""Waiting entries of all users."""


class AuditWriter:
    """Queues entries without waiting for the database, and writes them in order. Any thread may use it.

    No entry is lost silently. The log has each one that the database rejects, that finds the queue full, or that
    is not written in time at shutdown.
    """

    def __init__(self, log: AuditLog) -> None:
        self._audit = log
        self._changed = Condition()
        self._waiting: list[AuditEntry] = []
        self._writing: list[AuditEntry] = []
        self._of_users: Counter[str] = Counter()
        """Entries by user, those being written included."""
        self._thread: Thread | None = None
        self._closed = False

    def write(self, entry: AuditEntry) -> None:
        """Write one entry now. On return it is in the database or in the log."""
        self._write([entry])

    def add(self, entry: AuditEntry) -> None:
        """Queue one entry to be written in the background."""
        with self._changed:
            taken = self._has_room(entry.user) and self._starts()
            if taken:
                self._waiting.append(entry)
                self._of_users[entry.user] += 1
                self._changed.notify_all()
        if not taken:
            _log_lines([entry], "the queue of entries is full")

    def close(self, timeout: float) -> None:
        """Write waiting entries for up to ``timeout`` seconds; the rest and later ones go to the log."""
        with self._changed:
            self._closed = True
            thread = self._thread
            self._changed.notify_all()
        if thread is not None:
            thread.join(timeout)
        with self._changed:
            left = [*self._writing, *self._waiting]
            self._waiting = []
        _log_lines(left, f"not written within {timeout:g} s at shutdown")

    def _has_room(self, user: str) -> bool:
        return not self._closed and self._of_users[user] < MOST_OF_ONE and self._of_users.total() < MOST

    def _starts(self) -> bool:
        if self._thread is None:
            thread = Thread(target=self._run, name="audit", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the process has reached its limit of threads
                return False
            self._thread = thread
        return True

    def _run(self) -> None:
        while lines := self._next():
            self._write(lines)
            with self._changed:
                self._writing = []
                self._of_users -= Counter(line.user for line in lines)

    def _next(self) -> list[AuditEntry]:
        """Wait for entries and return all of them; an empty list once closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            self._writing, self._waiting = self._waiting, []
            return self._writing

    def _write(self, lines: Sequence[AuditEntry]) -> None:
        try:
            self._audit.write_all(lines)
        except StoreUnavailable as error:
            _log_lines(lines, str(error))
        except Exception as error:
            _LOG.exception("internal error (bug in Mirage): audit entries could not be written")
            _log_lines(lines, f"{type(error).__name__}: {error}")


def _log_lines(lines: Sequence[AuditEntry], reason: str) -> None:
    for line in lines:
        text = "event=audit_entry_not_stored user=%s action=%r result=%r reason=%r"
        _LOG.warning(text, line.user, line.action, line.result, reason, extra={"always": True})


_READING = frozenset({"GET", "HEAD", "OPTIONS"})
MOST_REFUSED = 100
"""Entries about rejected requests of one user before further ones are left out."""
_EVERY = 60.0
"""Seconds until one more entry is allowed."""
_NOTE = "mirage.audit"
_DONE = "done"
_BESIDE = ("/api/v1/agent/",)
"""Responses of agents: the audit log has their actions already, under their users' names."""


@dataclass(frozen=True, slots=True)
class Note:
    """What a route adds to the audit entry of its request."""

    action: str = ""
    """Empty: method and path of the request."""
    chain: ChainId | None = None
    refused: str = ""
    """Reason of a rejection that is to be audited although nothing has changed."""


def note(
    scope: MutableMapping[str, Any], action: str = "", chain: ChainId | None = None, refused: str = ""
) -> None:
    """Add details to the audit entry of a request. ``scope`` is that of the request."""
    scope[_NOTE] = Note(action, chain, refused)


class Auditing:
    """Middleware that writes audit entries: before the response, or after it for a rejected request."""

    def __init__(self, app: ASGIApp, writer: AuditWriter, now: Callable[[], Seconds]) -> None:
        self._app, self._writer, self._now = app, writer, now
        self._refused = RateLimiter(1 / _EVERY, MOST_REFUSED)
        self._left_out: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request and write its entry as soon as the status is known."""
        refused: list[AuditEntry] = []

        async def told(message: Message) -> None:
            if message["type"] == "http.response.start" and (entry := self._entry(scope, message["status"])):
                if entry.result == _DONE:
                    await query(entry.user, self._writer.write, entry)
                else:
                    refused.append(entry)
            await send(message)

        try:
            await self._app(scope, receive, told if scope["type"] == "http" else send)
        finally:
            for entry in refused:
                self._writer.add(entry)

    def _entry(self, scope: Scope, status: int) -> AuditEntry | None:
        """Return the audit entry; ``None`` without a change and without an attempt that was denied."""
        said, caller = scope.pop(_NOTE, Note()), known_caller(scope)
        changes = scope["method"] not in _READING and not scope["path"].startswith(_BESIDE)
        if caller is None or not (said.refused or (changes and (status < 400 or status == 403))):
            return None
        action = said.action or f"{scope['method']} {scope['path']}"[:200]
        result = said.refused or (_DONE if status < 400 else f"rejected ({status})")
        if result != _DONE:
            try:
                self._refused.take(caller.name)
            except TooOften:
                self._left_out[caller.name] += 1
                return None
            if more := self._left_out.pop(caller.name, 0):
                result += f"; {more} earlier rejections have no entry"
        return AuditEntry(self._now(), caller.name, caller.uid, action, said.chain, result, caller.how)

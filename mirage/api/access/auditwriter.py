"""Writes audit entries: of changes in the caller's thread, of rejected requests in the background."""

from __future__ import annotations

import logging
from collections import Counter
from threading import Condition, Thread
from typing import TYPE_CHECKING

from mirage.domain.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirage.store.audit import AuditEntry, AuditLog

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

"""Writes audit lines: those of changes in the caller's thread, those of rejected requests in the background."""

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
"""Lines of one user that wait."""
MOST = 4_000
"""Lines of all users that wait."""


class AuditWriter:
    """Takes lines without waiting for the database, and writes them in their order. Safe to use from any thread.

    No line is lost in silence: the log has each that the database does not take, that finds no room, or that is
    not written in time at the end.
    """

    def __init__(self, log: AuditLog) -> None:
        self._audit = log
        self._changed = Condition()
        self._waiting: list[AuditEntry] = []
        self._writing: list[AuditEntry] = []
        self._of_users: Counter[str] = Counter()
        """Lines by user, those that are being written included."""
        self._thread: Thread | None = None
        self._closed = False

    def write(self, entry: AuditEntry) -> None:
        """Write one line now; in the database or in the log when it returns."""
        self._write([entry])

    def add(self, entry: AuditEntry) -> None:
        """Have one line written soon."""
        with self._changed:
            taken = self._has_room(entry.user) and self._starts()
            if taken:
                self._waiting.append(entry)
                self._of_users[entry.user] += 1
                self._changed.notify_all()
        if not taken:
            _log_lines([entry], "no room for it among the lines that wait to be written")

    def close(self, timeout: float) -> None:
        """Write what waits, for up to ``timeout`` seconds; the rest goes to the log, as do later lines."""
        with self._changed:
            self._closed = True
            thread = self._thread
            self._changed.notify_all()
        if thread is not None:
            thread.join(timeout)
        with self._changed:
            left = [*self._writing, *self._waiting]
            self._waiting = []
        _log_lines(left, f"not written within {timeout:g} s at the end")

    def _has_room(self, user: str) -> bool:
        return not self._closed and self._of_users[user] < MOST_OF_ONE and self._of_users.total() < MOST

    def _starts(self) -> bool:
        """Whether the thread runs."""
        if self._thread is None:
            thread = Thread(target=self._run, name="audit", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the machine has no more threads for us now
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
        """All that wait, after waiting for one; none: it is closed."""
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
            _LOG.exception("internal error (bug in Mirage): audit lines could not be written")
            _log_lines(lines, f"{type(error).__name__}: {error}")


def _log_lines(lines: Sequence[AuditEntry], reason: str) -> None:
    for line in lines:
        extra = {"always": True}
        _LOG.warning("not in the audit: %s: %s: %s: %s", line.user, line.action, line.result, reason, extra=extra)

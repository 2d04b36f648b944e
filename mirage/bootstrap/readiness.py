"""Whether the daemon does what it is there for."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from threading import Thread
from typing import TYPE_CHECKING

from mirage.domain.bounds import format_instant
from mirage.domain.errors import StoreUnavailable
from mirage.store.about import write_about

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sqlalchemy import Connection

    from mirage.control.clocks import Pace
    from mirage.control.status import Status
    from mirage.domain.job import Seconds
    from mirage.store.opening import Store

_INTERVALS = 3
_PATIENCE = 8.0
"""Seconds; a database that is locked says so earlier."""
_AT_LEAST = 60.0
"""Real seconds that a cycle may take, however fast the cluster's clock runs."""
_TRIAL = "written"
"""The row that a check writes: a full disk takes the right to change, and no change."""


class ReadinessCheck:
    """Any thread may ask; each time it queries the database."""

    def __init__(
        self,
        status: Callable[[], Status],
        now: Callable[[], Seconds],
        pace: Pace,
        store: Store,
        impediment: Callable[[], str],
    ) -> None:
        """``impediment``: why this daemon may not act; empty: it leads."""
        self._status, self.now, self._pace = status, now, pace
        self._impediment = impediment
        self._trial = _Trial(lambda: store.database.write(_write_trial))
        self._shown: tuple[Status, str, Status] | None = None
        self._seen: Status | None = None
        self._seen_at = 0.0
        """On the monotonic clock: when the loop's present status was first seen."""

    def __call__(self) -> Mapping[str, str]:
        """Problem of each part; empty: none."""
        if impediment := self._impediment():
            # Who stands by looks at no cluster.
            return {"leadership": impediment, "store": self._trial.problem()}
        cycle, store = self._status().problem, self._trial.problem()
        return {"leadership": "", "cycle": cycle, "snapshot": self._snapshot(), "store": store}

    def shown(self, *, leads: bool) -> Status:
        """The loop's status; where the loop does not continue, such as for a database that hangs, with the reason.

        ``leads``: this process is to act. The same object as long as nothing changes.
        """
        status = self._status()
        why = (self._impediment() if leads else "") or self._behind(status)
        if not why:
            return status
        before = self._shown
        if before is None or before[0] is not status or before[1] != why:
            before = self._shown = status, why, status.failing(why)
        return before[2]

    def _behind(self, status: Status) -> str:
        if self._seen is not status:
            self._seen, self._seen_at = status, time.monotonic()
        recent = self.now() - status.time <= _INTERVALS * self._longest()
        if not status.cycles or recent or time.monotonic() - self._seen_at < _AT_LEAST:
            return ""
        return f"no cycle has ended since {format_instant(status.time)}; read the daemon's log"

    def _longest(self) -> Seconds:
        return self._pace.longest_now

    def _snapshot(self) -> str:
        status, now = self._status(), self.now()
        if not status.cycles:
            return "the first poll of the cluster has not ended"
        age = now - (status.snapshot.stale_since if status.snapshot.stale else status.time)
        if age > _INTERVALS * self._longest():
            return f"the last snapshot of the cluster is {age} s old"
        return ""


class _Trial:
    """Whether the database takes a change: an answer within seconds, also where the database gives none."""

    def __init__(self, write: Callable[[], None]) -> None:
        self._write = write
        self._lock = threading.Lock()
        self._under_way: Future[None] | None = None
        self._began = 0.0

    def problem(self) -> str:
        """Empty: it does. One attempt at a time: the next begins once the last has ended."""
        with self._lock:
            if self._under_way is None:
                self._began, self._under_way = time.monotonic(), Future()
                Thread(target=self._try, args=(self._under_way,), name="readiness", daemon=True).start()
            attempt = self._under_way
        try:
            attempt.result(max(0.0, self._began + _PATIENCE - time.monotonic()))
        except StoreUnavailable as error:
            return str(error)
        except TimeoutError:
            return f"the database has not answered for {time.monotonic() - self._began:.0f} s"
        return ""

    def _try(self, attempt: Future[None]) -> None:
        problem: Exception | None = None
        try:
            self._write()
        except Exception as error:
            problem = error
        with self._lock:
            self._under_way = None
        if problem is None:
            attempt.set_result(None)
        else:
            attempt.set_exception(problem)


def _write_trial(connection: Connection) -> None:
    write_about(connection, {_TRIAL: str(time.time_ns())})

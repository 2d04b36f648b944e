"""Whether the daemon does what it is there for."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from mirage.domain.errors import StoreUnavailable
from mirage.store.about import write_about

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sqlalchemy import Connection

    from mirage.control.pace import Pace
    from mirage.control.status import Status
    from mirage.domain.job import Seconds
    from mirage.store.opening import Store

_INTERVALS = 3
_TRIAL = "written"
"""The row that a check writes: a full disk takes the right to change, and no change."""


class Readiness:
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
        self._status, self.now, self._pace, self._store = status, now, pace, store
        self._impediment = impediment

    def __call__(self) -> Mapping[str, str]:
        """What is wrong with each part; empty: nothing."""
        if impediment := self._impediment():
            # Who stands by looks at no cluster.
            return {"leadership": impediment, "store": self._writable()}
        return {"leadership": "", "snapshot": self._snapshot(), "store": self._writable()}

    def _snapshot(self) -> str:
        status, now = self._status(), self.now()
        if not status.cycles:
            return "the first look at the cluster is not over"
        age = now - (status.snapshot.stale_since if status.snapshot.stale else status.time)
        pacing = self._pace.pacing
        if age > _INTERVALS * (pacing.longest if self._pace.stretched else pacing.interval):
            return f"the cluster was last seen {age} s ago"
        return ""

    def _writable(self) -> str:
        try:
            self._store.database.write(_write_trial)
        except StoreUnavailable as error:
            return str(error)
        return ""


def _write_trial(connection: Connection) -> None:
    write_about(connection, {_TRIAL: str(time.time_ns())})

"""Whether the daemon does what it is there for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import text

from mirage.domain.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mirage.control.pace import Pace
    from mirage.control.status import Status
    from mirage.domain.job import Seconds
    from mirage.store.opening import Store

_INTERVALS = 3
_NOTHING = text("DELETE FROM answers WHERE time < 0")
"""A change that changes nothing, but takes the right to change."""


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
            self._store.database.write(lambda connection: connection.execute(_NOTHING))
        except StoreUnavailable as error:
            return str(error)
        return ""

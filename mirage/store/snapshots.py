"""What the polls saw, for replays of the real past and for training."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import select

from mirage.store.columnar import packed, unpacked
from mirage.store.tables import snapshots
from mirage.store.upserts import upsert

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirage.domain.job import Seconds
    from mirage.domain.snapshot import Snapshot
    from mirage.store.database import Database


class SnapshotArchive:
    """Snapshots by their time, one a second at most. Every thread may use it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def write(self, snapshot: Snapshot) -> None:
        """Add a snapshot, in the place of another of the same second. Raises ``StoreUnavailable``."""
        row = {
            "time": int(snapshot.time),
            "pending": len(snapshot.pending),
            "running": len(snapshot.running),
            "document": packed(snapshot),
        }
        self._database.write(lambda connection: upsert(connection, snapshots, [row], ["time"]))

    def times(self, start: Seconds, end: Seconds) -> tuple[Seconds, ...]:
        """The times of the snapshots from ``start`` until before ``end``. Raises ``StoreUnavailable``."""
        c = snapshots.c
        query = select(c.time).where(c.time >= start, c.time < end).order_by(c.time)
        return tuple(self._database.read(lambda connection: connection.execute(query).scalars().all()))

    def read(self, start: Seconds, end: Seconds) -> Iterator[Snapshot]:
        """The snapshots from ``start`` until before ``end``, in order of time, with one in memory.

        Those deleted meanwhile are left out. Raises ``StoreUnavailable``, and ``ConfigError`` for one that a newer
        Mirage stored.
        """
        for time in self.times(start, end):
            data = self._document(time)
            if data is not None:
                yield unpacked(data, f"{self._database.where}: snapshot of {time}")

    def _document(self, time: Seconds) -> bytes | None:
        query = select(snapshots.c.document).where(snapshots.c.time == time)
        return self._database.read(lambda connection: connection.execute(query).scalar())

"""The waits of jobs that have started, kept across restarts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from sqlalchemy import select

from mirage.domain.decision import RecentWaits
from mirage.store.codec import whole_numbers
from mirage.store.tables import waits
from mirage.store.upserts import insert_new

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirage.store.database import Database
    from mirage.store.upserts import Row
    from mirage.store.waits import StartedJobs

_BATCH = 10_000


class SqlWaitHistory:
    """``WaitHistory`` of a daemon. Every thread may use it.

    The latest waits asked for stay in memory until more jobs are added.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._added = 0
        self._latest: tuple[int, int, RecentWaits] = (-1, 0, RecentWaits.none())
        """At which count of additions it was read, how many were asked for, and what there was."""

    def add(self, jobs: StartedJobs) -> None:
        """Keep these waits; jobs known already are left as they are. On disk when it returns.

        Written in batches of 10,000, so that seeding a long history does not keep others waiting. Raises
        ``ValueError`` for jobs that cannot be (``StartedJobs.check``), and ``StoreUnavailable``.
        """
        jobs.check()
        for rows in _batches(jobs):
            self._database.write(lambda connection, rows=rows: insert_new(connection, waits, rows))  # type: ignore[misc]
            self._added += 1

    def recent_waits(self, count: int) -> RecentWaits:
        """The last ``count`` jobs started, oldest first; fewer where fewer are known.

        Raises ``StoreUnavailable``.
        """
        read_at, asked, latest = self._latest
        if read_at != self._added or asked < count:
            read_at, asked = self._added, max(count, asked)
            latest = self._read(asked)
            self._latest = (read_at, asked, latest)
        first = max(0, len(latest) - count)
        return RecentWaits(latest.start[first:], latest.wait[first:], latest.nodes[first:], latest.limit[first:])

    def _read(self, count: int) -> RecentWaits:
        c = waits.c
        newest = select(c.start, c.start - c.submit, c.nodes, c.limit)
        newest = newest.order_by(c.start.desc(), c.job_id.desc(), c.submit.desc()).limit(count)
        rows = self._database.read(lambda connection: connection.execute(newest).all())
        cells = [tuple(row) for row in reversed(rows)]
        table = whole_numbers(cells, np.int64, f"{self._database.where}, waits").reshape(-1, 4)
        return RecentWaits(*(np.ascontiguousarray(column) for column in table.T))


def _batches(jobs: StartedJobs) -> Iterator[list[Row]]:
    names = (*jobs.partition_names, "")
    columns = (jobs.job_id, jobs.submit, jobs.start, jobs.nodes, jobs.limit, jobs.partition)
    for first in range(0, len(jobs), _BATCH):
        part = zip(*(column[first : first + _BATCH].tolist() for column in columns), strict=True)
        yield [
            {"job_id": i, "submit": submit, "start": start, "nodes": n, "limit": limit, "partition": names[code]}
            for i, submit, start, n, limit, code in part
        ]

"""Rows that can wait for the next transaction: a cycle writes hundreds of sentences and must not commit each."""

from __future__ import annotations

import logging
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING

from sqlalchemy import insert

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Connection, Table

    from mirage.store.database import Database
    from mirage.store.upserts import Row

_MOST = 200_000
_log = logging.getLogger(__name__)


class Outbox:
    """Collects rows and writes them, in order, together with whatever is committed next. For one thread.

    A row leaves only once it is committed. Where an answer to a commit is lost, its rows are written again: a
    sentence may then stand twice, never not at all. While the database is away the newest 200,000 rows are kept.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._rows: deque[tuple[Table, Row]] = deque()

    def add(self, table: Table, row: Row) -> None:
        """Keep a row for the next commit."""
        if len(self._rows) >= _MOST:
            self._drop_oldest()
        self._rows.append((table, row))

    def commit(self, work: Callable[[Connection], None] | None = None) -> None:
        """Write all rows kept and do ``work`` in one transaction.

        Raises ``StoreUnavailable``; all rows are then kept.
        """
        count = len(self._rows)
        if not count and work is None:
            return
        by_table: dict[Table, list[Row]] = {}
        for table, row in islice(self._rows, count):
            by_table.setdefault(table, []).append(row)

        def everything(connection: Connection) -> None:
            if work is not None:
                work(connection)
            for table, rows in by_table.items():
                connection.execute(insert(table), rows)

        self._database.write(everything)
        for _ in range(count):
            self._rows.popleft()

    def _drop_oldest(self) -> None:
        lost = _MOST // 10
        for _ in range(lost):
            self._rows.popleft()
        _log.warning(
            "%s: not writable for so long that the oldest %d lines of the journal are lost",
            self._database.where,
            lost,
        )

"""Rows that can wait for the next transaction: a cycle writes hundreds of sentences and must not commit each."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from sqlalchemy import insert

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection, Table

    from mirage.store.database import Database
    from mirage.store.upserts import Row

_MOST = 200_000
_log = logging.getLogger(__name__)

Told = Callable[[int], None]
"""Is told a row's key once the row is on disk."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A row, and who is to be told its key once it is written."""

    table: Table
    row: Row
    told: Told | None


class Outbox:
    """Collects rows and writes them, in order, together with whatever is committed next. For one thread.

    A row leaves only once it is committed. Where an answer to a commit is lost, its rows are written again: a
    sentence may then stand twice, never not at all. While the database is away the newest 200,000 rows are kept.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._rows: deque[Waiting] = deque()

    @property
    def waiting(self) -> int:
        """Rows not committed yet. Any thread."""
        return len(self._rows)

    def add(self, row: Waiting) -> None:
        """Keep a row for the next commit; its table's key is a number that the database counts up."""
        if len(self._rows) >= _MOST:
            self._drop_oldest()
        self._rows.append(row)

    def commit(self, work: Callable[[Connection], None] | None = None, also: Sequence[Waiting] = ()) -> None:
        """Write all rows kept and those of ``also``, and do ``work``, in one transaction.

        Raises ``StoreUnavailable``; all rows kept before are then kept, those of ``also`` are not.
        """
        count = len(self._rows)
        if not count and work is None:
            return
        waiting = (*islice(self._rows, count), *also)

        def everything(connection: Connection) -> list[tuple[Told, int]]:
            if work is not None:
                work(connection)
            return _inserted(connection, waiting)

        told = self._database.write(everything)
        for _ in range(count):
            self._rows.popleft()
        for tell, key in told:
            tell(key)

    def _drop_oldest(self) -> None:
        lost = _MOST // 10
        for _ in range(lost):
            self._rows.popleft()
        _log.warning(
            "%s: not writable for so long that the oldest %d lines of the journal are lost",
            self._database.where,
            lost,
        )


def _inserted(connection: Connection, waiting: Sequence[Waiting]) -> list[tuple[Told, int]]:
    """Writes the rows; whom to tell which key."""
    by_table: dict[Table, list[Waiting]] = {}
    for each in waiting:
        by_table.setdefault(each.table, []).append(each)
    found: list[tuple[Told, int]] = []
    for table, those in by_table.items():
        statement, rows = insert(table), [each.row for each in those]
        if all(each.told is None for each in those):
            connection.execute(statement, rows)
            continue
        (key,) = table.primary_key
        keys = connection.execute(statement.returning(key, sort_by_parameter_order=True), rows).scalars()
        found += [(each.told, at) for each, at in zip(those, keys, strict=True) if each.told is not None]
    return found

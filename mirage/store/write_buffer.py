"""Rows that can wait for the next transaction: a cycle writes hundreds of sentences and must not commit each."""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from sqlalchemy import insert
from sqlalchemy.exc import DataError, IntegrityError, ProgrammingError

from mirage.domain.shares import divide_loss

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection, Table

    from mirage.store.database import Database
    from mirage.store.tables import Row

_MOST = 200_000
"""Waiting rows of all users; beyond, the users with the most lose their oldest."""
_UNFIT = (DataError, IntegrityError, ProgrammingError, OverflowError, TypeError, ValueError)
"""Errors of values that the driver can never write; not retried."""
_log = logging.getLogger(__name__)

Told = Callable[[int], None]
"""Called with a row's key once the row is on disk."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A row, and the callback for its key once it is written."""

    table: Table
    row: Row
    told: Told | None


class WriteBuffer:
    """Collects rows and writes them, in order, together with whatever is committed next. For one thread.

    A row leaves only once it is committed. Where an answer to a commit is lost, its rows are written again: a
    sentence may then stand twice, never not at all. While the database is away 200,000 rows are kept, the newest
    of each user.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self.owners: dict[str, str] = {}
        """Owner by chain. Rows of unknown chains, and of none, count as the site's."""
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

        A row that the database cannot take is dropped and logged; the others are written. Raises
        ``StoreUnavailable``, and whatever ``work`` raises; all rows kept before are then kept, those of ``also``
        are not.
        """
        count = len(self._rows)
        if not count and work is None:
            return
        try:
            told = self._write(work, (*islice(self._rows, count), *also))
        except _UNFIT:
            bad = self._unwritable((*islice(self._rows, count), *also))
            if not bad:
                raise
            self._drop(bad)
            count = len(self._rows)
            good = [row for row in also if id(row) not in bad]
            told = self._write(work, (*islice(self._rows, count), *good))
        for _ in range(count):
            self._rows.popleft()
        for tell, key in told:
            tell(key)

    def _write(
        self, work: Callable[[Connection], None] | None, waiting: Sequence[Waiting]
    ) -> list[tuple[Told, int]]:
        def everything(connection: Connection) -> list[tuple[Told, int]]:
            if work is not None:
                work(connection)
            return _inserted(connection, waiting)

        return self._database.write(everything)

    def _unwritable(self, waiting: Sequence[Waiting]) -> dict[int, str]:
        """Those that the database does not take, by identity, and why. Nothing stays written."""
        bad: dict[int, str] = {}

        def each_alone(connection: Connection) -> None:
            for one in waiting:
                trial = connection.begin_nested()
                try:
                    connection.execute(insert(one.table), one.row)
                except _UNFIT as error:
                    bad[id(one)] = f"{type(error).__name__}: {getattr(error, 'orig', None) or error}"
                finally:
                    trial.rollback()

        self._database.write(each_alone)
        return bad

    def _drop(self, bad: dict[int, str]) -> None:
        for reason in bad.values():
            _log.error("%s: an entry that cannot be stored is dropped: %s", self._database.where, reason[:200])
        kept = [row for row in self._rows if id(row) not in bad]
        self._rows.clear()
        self._rows.extend(kept)

    def _drop_oldest(self) -> None:
        users = [self.owners.get(each.row.get("chain_id") or "", "") for each in self._rows]
        left = divide_loss(Counter(users), max(1, _MOST // 10))
        lost, kept = sum(left.values()), deque[Waiting]()
        for user, row in zip(users, self._rows, strict=True):
            if left.get(user):
                left[user] -= 1
            else:
                kept.append(row)
        self._rows = kept
        _log.warning(
            "%s: not writable for so long that the oldest %d lines of the journal are lost",
            self._database.where,
            lost,
        )


def _inserted(connection: Connection, waiting: Sequence[Waiting]) -> list[tuple[Told, int]]:
    """Write the rows; return the callbacks with their keys."""
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

"""What a database says of itself, in its table ``about``: the cluster's name, the last transaction's number.

The number is that of a leader's last transaction: a database that holds an earlier one was restored. A physical
copy, a snapshot of the database's machine or a replica that lagged behind looks like the original in everything
else. The number is compared in each transaction while the database is open, and at the next start with the one in
a file of the state directory, which lies elsewhere than a server's database.
"""

from __future__ import annotations

import logging
import os
import threading
from contextlib import closing
from typing import TYPE_CHECKING

from sqlalchemy import inspect, select

from mirage.atomic_file import read_regular
from mirage.domain.errors import StoreUnavailable
from mirage.store.database import Database
from mirage.store.location import locate
from mirage.store.tables import about, upsert

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from sqlalchemy import Connection


def read_about(connection: Connection, name: str) -> str | None:
    """Return the value of one row, or ``None``. A schema before 0007 has no such table."""
    return connection.execute(select(about.c.value).where(about.c.name == name)).scalar_one_or_none()


def write_about(connection: Connection, values: Mapping[str, str]) -> None:
    """Store these values by name; other rows stay."""
    upsert(connection, about, [{"name": name, "value": value} for name, value in values.items()], ["name"])


_LOG = logging.getLogger(__name__)

_TRANSACTIONS = "transactions"
_FILE = "transactions"


class WriteCount:
    """Counts the transactions of one process that leads; one at a time. Any thread may use it."""

    def __init__(self, stored: int, where: str, file: Path | None = None) -> None:
        """``stored``: the number in the database as it was opened; ``file``: where the last one is kept, too."""
        self.lock = threading.Lock()
        self._possible = {stored}
        """What the database may hold: an answer to a commit may be lost."""
        self._where, self._file = where, file
        self._failed = False

    def step(self, connection: Connection) -> None:
        """Count the transaction, within it. Raises ``StoreUnavailable`` where the database was put back."""
        if read_number(connection) not in self._possible:
            raise StoreUnavailable(
                f"{self._where}: the database was put back to an earlier state while it was open, nothing is"
                " stored; stop all daemons that use it, check that the restore is complete, start them again"
            )
        number = max(self._possible) + 1
        write_about(connection, {_TRANSACTIONS: str(number)})
        self._possible.add(number)

    def committed(self) -> None:
        """The transaction that was counted last is on disk."""
        number = max(self._possible)
        self._possible = {number}
        if self._file is None:
            return
        try:
            keep_number(self._file, self._where, number)
            self._failed = False
        except OSError as error:
            if not self._failed:
                _LOG.warning("%s: not written: %s", self._file, error.strerror)
            self._failed = True


def read_number(connection: Connection) -> int:
    """The number of the last transaction; 0: none was counted yet. Raises ``StoreUnavailable``."""
    found = read_about(connection, _TRANSACTIONS) or "0"
    if not (found.isascii() and found.isdigit()):
        raise StoreUnavailable(f"the table about: {_TRANSACTIONS} is {found[:40]!r}, no number; restore a backup")
    return int(found)


def number_file(state: Path) -> Path:
    """Where the number is kept in addition to the database."""
    return state / _FILE


def kept_number(file: Path, where: str) -> int:
    """The number in the file, where it is about this database; 0: it is about another, or it is missing."""
    try:
        text = read_regular(file).decode("utf-8", "replace")
    except OSError:
        return 0
    number, _, place = text.partition(" ")
    return int(number) if place == where and number.isascii() and number.isdigit() else 0


def witness(database: Database, file: Path | None) -> None:
    """Keep the number that the leader has reached, for a daemon that does not lead; raises ``StoreUnavailable``.

    Once it leads itself, it knows by that a database that was put back meanwhile. A smaller number is not kept.
    """
    number = database.read(read_number)
    if file is None or number <= kept_number(file, database.where):
        return
    try:
        keep_number(file, database.where, number)
    except OSError as error:
        _LOG.warning("%s: not written: %s", file, error.strerror)


def keep_number(file: Path, where: str, number: int) -> None:
    """Write the file; one that is cut short counts as none. Raises ``OSError``."""
    handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as out:
        out.write(f"{number} {where}")


_CLUSTER = "cluster"
_PATIENCE = 5.0


class ClusterNameStore:
    """The name, for the daemon that leads."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def settle(self, name: str) -> str:
        """Store ``name`` where no name is; returns the stored one. Raises ``StoreUnavailable``."""
        stored = self._database.read(_read)
        return stored or self._database.write(lambda connection: _settle(connection, name))


def read_cluster_name(url: str) -> str:
    """The name in a database; empty: none yet, or there is no database.

    Raises ``ConfigError``, ``MissingExtra`` and ``StoreUnavailable``.
    """
    location = locate(url)
    if location.is_missing() or (location.file is not None and not location.file.stat().st_size):
        return ""
    with closing(Database.at(url, _PATIENCE)) as database:
        return database.read(_read)


def change_cluster_name(url: str, name: str) -> None:
    """Store another name in a database of this version's schema. Raises as ``read_cluster_name``."""
    with closing(Database.at(url, _PATIENCE)) as database:
        database.write(lambda connection: write_about(connection, {_CLUSTER: name}))


def _settle(connection: Connection, name: str) -> str:
    stored = _read(connection)
    if not stored:
        write_about(connection, {_CLUSTER: name})
    return stored or name


def _read(connection: Connection) -> str:
    if not inspect(connection).has_table(about.name):  # of an earlier schema
        return ""
    return read_about(connection, _CLUSTER) or ""

"""The name of the cluster that a database is about."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from sqlalchemy import inspect

from mirage.store.about import read_about, write_about
from mirage.store.database import Database
from mirage.store.location import locate
from mirage.store.tables import about

if TYPE_CHECKING:
    from sqlalchemy import Connection

_NAME = "cluster"
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
    file = locate(url).file
    if file is not None and not (file.exists() and file.stat().st_size):
        return ""
    with closing(Database.at(url, _PATIENCE)) as database:
        return database.read(_read)


def change_cluster_name(url: str, name: str) -> None:
    """Store another name in a database of this version's schema. Raises as ``read_cluster_name``."""
    with closing(Database.at(url, _PATIENCE)) as database:
        database.write(lambda connection: write_about(connection, {_NAME: name}))


def _settle(connection: Connection, name: str) -> str:
    stored = _read(connection)
    if not stored:
        write_about(connection, {_NAME: name})
    return stored or name


def _read(connection: Connection) -> str:
    if not inspect(connection).has_table(about.name):  # of an earlier schema
        return ""
    return read_about(connection, _NAME) or ""

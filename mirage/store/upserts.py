"""Insertions that skip or replace existing rows; same syntax in SQLite and PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy.dialects import postgresql, sqlite

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection, Table

Row = dict[str, Any]


def upsert(connection: Connection, table: Table, rows: Sequence[Row], key: Sequence[str]) -> None:
    """Add rows; one whose ``key`` is there already replaces the values of the other columns given."""
    if not rows:
        return
    statement = _insert(connection, table)
    values = {name: statement.excluded[name] for name in rows[0] if name not in key}
    connection.execute(statement.on_conflict_do_update(index_elements=key, set_=values), rows)


def insert_new(connection: Connection, table: Table, rows: Sequence[Row]) -> None:
    """Add the rows whose key is not there yet."""
    if rows:
        connection.execute(_insert(connection, table).on_conflict_do_nothing(), rows)


def _insert(connection: Connection, table: Table) -> sqlite.Insert | postgresql.Insert:
    return postgresql.insert(table) if connection.dialect.name == "postgresql" else sqlite.insert(table)

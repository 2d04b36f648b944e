"""What a database says of itself: the rows of the table ``about``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import select

from mirage.store.tables import about
from mirage.store.upserts import upsert

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy import Connection


def read_about(connection: Connection, name: str) -> str | None:
    """Return the value of one row, or ``None``. A schema before 0007 has no such table."""
    return connection.execute(select(about.c.value).where(about.c.name == name)).scalar_one_or_none()


def write_about(connection: Connection, values: Mapping[str, str]) -> None:
    """Store these values by name; other rows stay."""
    upsert(connection, about, [{"name": name, "value": value} for name, value in values.items()], ["name"])

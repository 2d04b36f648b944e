"""Which UID each user's name stood for when chains and tokens of that name were made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import select

from mirage.domain.texts import storable
from mirage.store.tables import holders
from mirage.store.upserts import upsert

if TYPE_CHECKING:
    from mirage.store.database import Database


class HolderStore:
    """Every thread may use it. All methods raise ``StoreUnavailable``."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def load(self) -> dict[str, int]:
        """The UID of each name."""
        query = select(holders.c.name, holders.c.uid)
        rows = self._database.read(lambda connection: connection.execute(query).all())
        return {row.name: row.uid for row in rows}

    def put(self, name: str, uid: int) -> None:
        """Keep the UID of a name; on disk when it returns."""
        row = {"name": storable(name), "uid": uid}
        self._database.write(lambda connection: upsert(connection, holders, [row], ["name"]))

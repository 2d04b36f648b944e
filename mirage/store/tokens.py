"""Tokens with which people and programs speak to the API over the network: never the tokens themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import bindparam, delete, insert, select, update

from mirage.documentfaults import reader_of
from mirage.domain.texts import storable
from mirage.store.codec import from_row
from mirage.store.tables import tokens

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy import Connection

    from mirage.store.database import Database


@dataclass(frozen=True, slots=True)
class StoredToken:
    """What is kept of one token. Times are the machine's clock, not Slurm's."""

    token_id: str
    owner: str
    label: str
    scope: str
    digest: bytes
    """SHA-256 of the whole token."""
    created: int
    expires: int
    """0: never."""
    used: int = 0
    """When last, to within some minutes; 0: never yet."""


_TOKEN = reader_of(StoredToken)


class TokenStore:
    """Every thread may use it. All methods raise ``StoreUnavailable``."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def load(self) -> tuple[StoredToken, ...]:
        """All of them, oldest first."""
        query = select(tokens).order_by(tokens.c.created, tokens.c.token_id)
        rows = self._database.read(lambda connection: connection.execute(query).all())
        return tuple(from_row(_TOKEN, row._mapping, f"{self._database.where}, tokens") for row in rows)

    def add(self, token: StoredToken) -> None:
        """Keep a new one; on disk when it returns."""
        row = {name: getattr(token, name) for name in StoredToken.__slots__}
        row |= {"owner": storable(token.owner), "label": storable(token.label)}

        def work(connection: Connection) -> None:
            connection.execute(delete(tokens).where(tokens.c.token_id == token.token_id))
            connection.execute(insert(tokens), row)

        self._database.write(work)

    def remove(self, token_id: str) -> None:
        """Delete a token; a missing one is no error."""
        gone = delete(tokens).where(tokens.c.token_id == token_id)
        self._database.write(lambda connection: connection.execute(gone))

    def touch(self, used: Mapping[str, int]) -> None:
        """When each of these was last used."""
        rows = [{"which": token_id, "instant": instant} for token_id, instant in used.items()]
        change = update(tokens).where(tokens.c.token_id == bindparam("which")).values(used=bindparam("instant"))
        self._database.write(lambda connection: connection.execute(change, rows))

"""What the database keeps of callers: tokens, UIDs of user names, audit log, idempotent responses.

Of a token only its digest is stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import bindparam, delete, func, insert, select, update

from mirage.documentreading import reader_of
from mirage.domain.chain import ChainId
from mirage.domain.texts import storable
from mirage.store.codec import from_row
from mirage.store.tables import answers, audit, holders, tokens, upsert

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import Connection

    from mirage.domain.job import Seconds
    from mirage.store.database import Database

MOST_OF_ONE = 1_000
"""Answers of one caller; the oldest make room for the next one."""
MOST_BYTES_OF_ONE = 8 << 20
"""Bytes of the bodies of these answers."""


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """One answer. The time is the machine's clock, not Slurm's."""

    caller: str
    key: str
    time: int
    digest: bytes
    """SHA-256 of the request."""
    status: int
    headers: str
    """JSON: pairs of name and value."""
    body: bytes


_ANSWER = reader_of(StoredAnswer)


class IdempotencyStore:
    """Every thread may use it. All methods raise ``StoreUnavailable``."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def find(self, caller: str, key: str, since: int) -> StoredAnswer | None:
        """The answer that this caller was given under this key, no earlier than ``since``."""
        query = select(answers).where(answers.c.caller == caller, answers.c.key == key, answers.c.time >= since)
        row = self._database.read(lambda connection: connection.execute(query).one_or_none())
        return None if row is None else from_row(_ANSWER, row._mapping, f"{self._database.where}, answers")

    def keep(self, answer: StoredAnswer, since: int) -> None:
        """Keep one; those of before ``since`` go, and the oldest of its caller beyond the bounds."""
        row = {name: getattr(answer, name) for name in StoredAnswer.__slots__}
        same = (answers.c.caller == answer.caller) & (answers.c.key == answer.key)

        def work(connection: Connection) -> None:
            connection.execute(delete(answers).where(same | (answers.c.time < since)))
            for key in _beyond(connection, answer):
                old = (answers.c.caller == answer.caller) & (answers.c.key == key)
                connection.execute(delete(answers).where(old))
            connection.execute(insert(answers), row)

        self._database.write(work)


def _beyond(connection: Connection, answer: StoredAnswer) -> list[str]:
    """Return the keys of the caller's oldest responses that must be dropped to make room for ``answer``."""
    columns = answers.c.key, func.length(answers.c.body)
    query = select(*columns).where(answers.c.caller == answer.caller).order_by(answers.c.time.desc())
    room, found = MOST_BYTES_OF_ONE - len(answer.body), list[str]()
    for count, (key, size) in enumerate(connection.execute(query), 1):
        room -= size
        if count >= MOST_OF_ONE or room < 0:
            found.append(key)
    return found


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


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """An action of a user, or on behalf of one."""

    time: Seconds
    user: str
    """Who asked."""
    uid: int
    action: str
    """Such as ``pause``."""
    chain: ChainId | None
    result: str
    """``done``, or why not."""
    how: str = ""
    """How they proved who they are; empty: it was an act of the loop."""


@dataclass(frozen=True, slots=True)
class _Row:
    id: int
    time: int
    user: str
    uid: int
    action: str
    chain_id: str | None
    result: str
    how: str


_ROW = reader_of(_Row)


@dataclass(frozen=True, slots=True)
class AuditLine:
    """An entry and its place."""

    cursor: int
    entry: AuditEntry


class AuditLog:
    """Entries are only ever added. Every thread may use it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def write(self, entry: AuditEntry) -> None:
        """Append one entry; on disk when it returns. Raises ``StoreUnavailable``."""
        self.write_all((entry,))

    def write_all(self, entries: Sequence[AuditEntry]) -> None:
        """Append entries in one transaction; on disk when it returns. Raises ``StoreUnavailable``."""
        rows = [_row(entry) for entry in entries]
        self._database.write(lambda connection: connection.execute(insert(audit), rows))

    def read(
        self, chain: ChainId | None = None, before: int | None = None, limit: int = 100
    ) -> tuple[AuditLine, ...]:
        """Entries, newest first: about one chain, before a cursor. Raises ``StoreUnavailable``."""
        query = select(audit).order_by(audit.c.id.desc()).limit(limit)
        if chain is not None:
            query = query.where(audit.c.chain_id == chain)
        if before is not None:
            query = query.where(audit.c.id < before)
        rows = self._database.read(lambda connection: connection.execute(query).all())
        where = f"{self._database.where}, audit"
        return tuple(_line(from_row(_ROW, row._mapping, where)) for row in rows)


def _row(entry: AuditEntry) -> dict[str, int | str | None]:
    return {
        "time": int(entry.time),
        "user": storable(entry.user),
        "uid": entry.uid,
        "action": storable(entry.action),
        "chain_id": entry.chain and storable(entry.chain),
        "result": storable(entry.result),
        "how": storable(entry.how),
    }


def _line(row: _Row) -> AuditLine:
    chain = ChainId(row.chain_id) if row.chain_id else None
    return AuditLine(row.id, AuditEntry(row.time, row.user, row.uid, row.action, chain, row.result, row.how))

"""Stored responses to requests with an idempotency key, for repeated requests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import delete, func, insert, select

from mirage.documentfaults import reader_of
from mirage.store.codec import from_row
from mirage.store.tables import answers

if TYPE_CHECKING:
    from sqlalchemy import Connection

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


class AnswerStore:
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

"""The journal in the database: events, decisions and predictions; and the completed handovers."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import partial
from typing import TYPE_CHECKING

from sqlalchemy import func, select

from mirage.documentreading import reader_of
from mirage.domain.chain import ChainId
from mirage.domain.decision import Prediction
from mirage.domain.job import Seconds
from mirage.domain.journal import Entry, EntryKind
from mirage.domain.objective import Alternative, Outcome
from mirage.domain.texts import storable
from mirage.store.codec import from_row, from_values, loaded, plain_values, to_text
from mirage.store.tables import journal, outcomes
from mirage.store.write_buffer import Waiting

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from typing import Any

    from sqlalchemy import ColumnElement, Connection, Row

    from mirage.store.database import Database
    from mirage.store.write_buffer import WriteBuffer


@dataclass(frozen=True, slots=True)
class HandoverRecord:
    """One handover that is complete."""

    chain: ChainId
    predecessor: int
    """Index of the link that ended."""
    successor: int
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class _HandoverRow:
    chain_id: str
    predecessor: int
    successor: int
    predecessor_end: int
    successor_start: int
    alternative_p10: int | None
    alternative_p50: int | None
    alternative_p90: int | None


_ROW = reader_of(_HandoverRow)


class OutcomeLog:
    """Reads what ``SqlChainStore.save`` wrote; outlives the chains themselves."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def read(self, chain: ChainId | None = None, since: Seconds | None = None) -> tuple[HandoverRecord, ...]:
        """Handovers in order of the successor's start: of one chain, started at ``since`` or later.

        Raises ``StoreUnavailable``.
        """
        order = (outcomes.c.successor_start, outcomes.c.chain_id, outcomes.c.predecessor)
        query = select(outcomes).order_by(*order)
        if chain is not None:
            query = query.where(outcomes.c.chain_id == chain)
        if since is not None:
            query = query.where(outcomes.c.successor_start >= since)
        rows = self._database.read(lambda connection: connection.execute(query).all())
        where = f"{self._database.where}, outcomes"
        return tuple(_read(from_row(_ROW, row._mapping, where)) for row in rows)


def _read(row: _HandoverRow) -> HandoverRecord:
    outcome = Outcome(row.predecessor_end, row.successor_start, _alternative(row))
    return HandoverRecord(ChainId(row.chain_id), row.predecessor, row.successor, outcome)


def _alternative(row: _HandoverRow) -> Alternative | None:
    p10, p50, p90 = row.alternative_p10, row.alternative_p50, row.alternative_p90
    return Alternative(p10, p50, p90) if p10 is not None and p50 is not None and p90 is not None else None


_ENTRY = reader_of(Entry, {"ChainId": ChainId, "Outcome": Outcome, "Prediction": Prediction, "Seconds": Seconds})
_COLUMNS = ("time", "chain", "kind", "text", "link")
_REST = {field.name: field.default for field in fields(Entry) if field.name not in _COLUMNS}


@dataclass(frozen=True, slots=True)
class JournalLine:
    """An entry and its place."""

    cursor: int
    """Counts up; the next older page begins before the last line's."""
    entry: Entry


@dataclass(frozen=True, slots=True)
class Span:
    """A part of one chain's journal."""

    chain: ChainId
    link: int | None = None
    """``None``: all."""
    first: int = 0
    """Cursor of the oldest line."""
    before: int | None = None
    """Cursor of the first line that is too new; ``None``: none is."""

    def within(self, kinds: Collection[EntryKind]) -> list[ColumnElement[bool]]:
        """The conditions on a line of these kinds."""
        found = [journal.c.chain_id == self.chain, journal.c.kind.in_([kind.value for kind in kinds])]
        found += [journal.c.id >= self.first] if self.first else []
        found += [journal.c.id < self.before] if self.before is not None else []
        return found + ([journal.c.link == self.link] if self.link is not None else [])


class SqlJournal:
    """``Journal`` of a daemon: entries written are on disk with the next chain saved, or on ``flush``."""

    def __init__(self, database: Database, outbox: WriteBuffer) -> None:
        self._database = database
        self._outbox = outbox
        self._listeners: tuple[Callable[[JournalLine], None], ...] = ()

    def listen(self, listener: Callable[[JournalLine], None]) -> None:
        """Call ``listener`` for every entry written from now on, once it is on disk.

        The loop's thread calls it: it must neither wait nor raise.
        """
        self._listeners = (*self._listeners, listener)

    def write(self, entry: Entry) -> None:
        """Append one entry, in memory for now; called by the loop's thread only."""
        self._outbox.add(self.row(entry))

    def row(self, entry: Entry) -> Waiting:
        """Return an entry as a row to write, with its listener."""
        details = {name: getattr(entry, name) for name in _REST}
        row = {
            "time": int(entry.time),
            "chain_id": entry.chain and storable(entry.chain),
            "link": entry.link,
            "kind": entry.kind.value,
            "text": storable(entry.text),
            "details": None if details == _REST else _details(entry),
        }
        return Waiting(journal, row, partial(self._stored, entry) if self._listeners else None)

    def _stored(self, entry: Entry, cursor: int) -> None:
        for listener in self._listeners:
            listener(JournalLine(cursor, entry))

    def flush(self) -> None:
        """Put on disk all that was written; call it at the end of a cycle.

        Raises ``StoreUnavailable``; the entries are kept for the next attempt.
        """
        self._outbox.commit()

    @property
    def unsaved(self) -> int:
        """Entries not on disk yet. Any thread."""
        return self._outbox.waiting

    def read(
        self,
        chain: ChainId | None = None,
        kinds: Collection[EntryKind] = (),
        before: int | None = None,
        limit: int = 100,
        link: int | None = None,
    ) -> tuple[JournalLine, ...]:
        """Entries on disk, newest first: of one chain or link, of some kinds, before a cursor. Any thread may ask.

        Raises ``StoreUnavailable``, and ``ConfigError`` for an entry that this version cannot read.
        """
        query = select(journal).order_by(journal.c.id.desc()).limit(limit)
        if chain is not None:
            query = query.where(journal.c.chain_id == chain)
        if kinds:
            query = query.where(journal.c.kind.in_([kind.value for kind in kinds]))
        if link is not None:
            query = query.where(journal.c.link == link)
        if before is not None:
            query = query.where(journal.c.id < before)
        rows = self._database.read(lambda connection: connection.execute(query).all())
        return tuple(_line(row, f"{self._database.where}: line {row.id} of the journal") for row in rows)

    def since(self, cursor: int, most: int, chains: Collection[ChainId] | None = None) -> tuple[JournalLine, ...]:
        """The newest ``most`` lines after a cursor, oldest first; of ``chains`` only. Raises as ``read``."""
        query = select(journal).where(journal.c.id > cursor).order_by(journal.c.id.desc()).limit(most)
        if chains is not None:
            query = query.where(journal.c.chain_id.in_(chains))
        rows = self._database.read(lambda connection: connection.execute(query).all())
        where = self._database.where
        return tuple(_line(row, f"{where}: line {row.id} of the journal") for row in reversed(rows))

    def thinned(self, span: Span, kinds: Collection[EntryKind], most: int) -> tuple[JournalLine, ...]:
        """About ``most`` entries of a chain's, newest first: all, or those of times evenly apart.

        Entries of the same time are included or left out together, so that forecasts of several predictors can be
        compared. Raises as ``read``.
        """
        return self._database.read(lambda connection: self._thinned(connection, span.within(kinds), most))

    def _thinned(
        self, connection: Connection, chosen: Sequence[ColumnElement[bool]], most: int
    ) -> tuple[JournalLine, ...]:
        count = connection.execute(select(func.count()).select_from(journal).where(*chosen)).scalar_one()
        step = max(1, -(-count // most))
        place = func.dense_rank().over(order_by=journal.c.time.desc()).label("place")
        ranked = select(journal.c.id, place).where(*chosen).subquery()
        kept = select(ranked.c.id).where(ranked.c.place % step == 1 % step)
        query = select(journal).where(journal.c.id.in_(kept)).order_by(journal.c.id.desc())
        where = self._database.where
        return tuple(_line(row, f"{where}: line {row.id} of the journal") for row in connection.execute(query))


def _details(entry: Entry) -> str:
    values = plain_values(_ENTRY, entry)
    return to_text({name: values[name] for name in _REST})


def _line(row: Row[Any], where: str) -> JournalLine:
    values = loaded(row.details, where) if row.details else {}
    values |= {"time": row.time, "chain": row.chain_id, "link": row.link, "kind": row.kind, "text": row.text}
    return JournalLine(row.id, from_values(_ENTRY, values, where))

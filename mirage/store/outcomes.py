"""The handovers of all chains, as saving the chains completed them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import select

from mirage.documentfaults import reader_of
from mirage.domain.chain import ChainId
from mirage.domain.outcome import Alternative, Outcome
from mirage.store.codec import from_row
from mirage.store.tables import outcomes

if TYPE_CHECKING:
    from mirage.domain.job import Seconds
    from mirage.store.database import Database


@dataclass(frozen=True, slots=True)
class HandoverRecord:
    """One handover that is complete."""

    chain: ChainId
    predecessor: int
    """Index of the link that ended."""
    successor: int
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class _Row:
    chain_id: str
    predecessor: int
    successor: int
    predecessor_end: int
    successor_start: int
    alternative_p10: int | None
    alternative_p50: int | None
    alternative_p90: int | None


_ROW = reader_of(_Row)


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


def _read(row: _Row) -> HandoverRecord:
    outcome = Outcome(row.predecessor_end, row.successor_start, _alternative(row))
    return HandoverRecord(ChainId(row.chain_id), row.predecessor, row.successor, outcome)


def _alternative(row: _Row) -> Alternative | None:
    p10, p50, p90 = row.alternative_p10, row.alternative_p50, row.alternative_p90
    return Alternative(p10, p50, p90) if p10 is not None and p50 is not None and p90 is not None else None

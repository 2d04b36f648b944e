"""Stores that live as long as the process: for replays, training and tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mirage.domain.chain import ChainId, ChainRecord


class MemoryStore:
    """Chains in a dictionary."""

    def __init__(self, *records: ChainRecord) -> None:
        self._records: dict[ChainId, ChainRecord] = {record.chain.chain_id: record for record in records}

    def load(self) -> tuple[ChainRecord, ...]:
        """Every chain, in order of creation."""
        return tuple(self._records.values())

    def save(self, record: ChainRecord) -> None:
        """Add or replace the record of one chain."""
        self._records[record.chain.chain_id] = record


class NoFiles:
    """A world without done-files."""

    def exists(self, path: str) -> bool:
        """Never."""
        del path
        return False

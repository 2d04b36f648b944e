"""Keeps a store as this version makes it, as SQL, in ``frozen``: python tests/store/freeze_schema.py >REVISION.sql

To be run before the next migration is written; ``test_store_upgrading.py`` says so where it was forgotten. What is
in there is never written again: it is what that version of Mirage left behind.
"""

from __future__ import annotations

import sqlite3
import sys
import tempfile
from pathlib import Path

import numpy as np
from stored_values import jobs, ran, record

from mirage.domain.chain import ChainId
from mirage.domain.journal import Entry, EntryKind
from mirage.domain.snapshot import JobColumns, Snapshot
from mirage.store.access import AuditEntry
from mirage.store.opening import Store, open_store


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "mirage.db")
        store = open_store(f"sqlite:///{file}")
        fill(store)
        store.close()
        connection = sqlite3.connect(file)
        sys.stdout.write("\n".join(connection.iterdump()) + "\n")
        connection.close()


def fill(store: Store) -> None:
    """A little of everything."""
    first = record().with_link(ran(1, 100, 200)).with_link(ran(2, 230, 330)).with_link(ran(3, 300, 400))
    for value in (first, record("other", links=2, reason="it's \N{SNOWMAN}")):
        store.chains.save(value)
    store.journal.write(Entry(5, ChainId("svc"), EntryKind.ACTION, "link 3"))
    store.journal.write(Entry(6, None, EntryKind.EVENT, "nothing"))
    store.journal.flush()
    store.audit.write(AuditEntry(7, "alice", 1000, "pause", ChainId("svc"), "done"))
    columns = JobColumns(*(np.arange(3, dtype=np.int64) for _ in JobColumns.__slots__))
    store.snapshots.write(Snapshot(8, columns, columns, (), ("alice",), ("a100",), ()))
    store.waits.add(jobs((1, 10, 30), (2, 20, 60)))
    if hasattr(store, "jobs"):
        from test_store_jobs import table

        store.jobs.add(table(5, np.random.default_rng(1)))


if __name__ == "__main__":
    main()

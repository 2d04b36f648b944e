"""The content of the database after a disk or a person changed it: rows, documents in them, snapshots."""

from __future__ import annotations

import json
import sqlite3
import struct
import tempfile
import zlib
from contextlib import closing
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from fuzzing import Target

from mirage.domain.chain import Chain, ChainId, ChainRecord
from mirage.domain.decision import WaitForecast
from mirage.domain.job import JobId, JobRequest
from mirage.domain.jobtable import Names, job_table
from mirage.domain.journal import Entry, EntryKind
from mirage.domain.lease import VACANT, Lease
from mirage.domain.link import Link, LinkState
from mirage.domain.snapshot import JobColumns, PartitionState, Snapshot
from mirage.store.access import AuditEntry, StoredAnswer, StoredToken
from mirage.store.chains import SqlChainStore
from mirage.store.leases import SqlLeases
from mirage.store.opening import Store, open_store
from mirage.store.snapshots import packed, unpacked
from mirage.store.waits import SqlWaitHistory, StartedJobs
from mirage.store.write_buffer import WriteBuffer

if TYPE_CHECKING:
    from collections.abc import Callable

NOW = 1_700_000_000
HEAD = struct.Struct("<4sBI")
COLUMNS = JobColumns(*(np.arange(i, i + 3, dtype=np.int64) for i in range(11)))
SNAPSHOT = replace(
    Snapshot.unseen(NOW),
    pending=COLUMNS,
    partitions=(PartitionState("p", 8, 4, 3, 1),),
    users=("ada", "bob"),
)
CHAIN = Chain(ChainId("svc"), "svc", "ada", JobRequest("svc", "#!/bin/sh\nsrun x\n", 3_600))
LINKS = (
    Link(1, CHAIN.tag(1), NOW, LinkState.ENDED, JobId(7), NOW, NOW + 5, NOW + 3_600),
    Link(2, CHAIN.tag(2), NOW, LinkState.RUNNING, JobId(8), NOW + 9, NOW + 3_700),
)
FORECAST = WaitForecast((0.1, 0.9), (float(NOW), NOW + 60.0))
DECISION = Entry(NOW, CHAIN.chain_id, EntryKind.DECISION, "submit now", 1, "average", FORECAST)


@cache
def store() -> tuple[Store, str]:
    """One for all inputs, with a row in every table; and its file, which goes with the process."""
    FOLDERS.append(tempfile.TemporaryDirectory())
    file = f"{FOLDERS[-1].name}/mirage.db"
    kept = open_store(f"sqlite:///{file}")
    kept.chains.save(ChainRecord(CHAIN, LINKS), DECISION)
    kept.journal.flush()
    kept.snapshots.write(SNAPSHOT)
    numbers = (np.array([value]) for value in (7, NOW, NOW + 5, 2, 3_600, 0))
    kept.waits.add(StartedJobs(*numbers, partition_names=("p",)))
    names = {name: Names.encode(["x"]) for name in ("user", "account", "partition", "qos", "name", "constraint")}
    gres = {"gres": np.array([[2]], np.int32), "gres_names": ("gpu:a100",)}
    kept.jobs.add(job_table(1, job_id=np.array(["7"]), submit=np.array([NOW]), **names, **gres))
    kept.audit.write(AuditEntry(NOW, "ada", 1_000, "pause", CHAIN.chain_id, "done"))
    kept.tokens.add(StoredToken("t1", "ada", "laptop", "read", b"d" * 32, NOW, 0))
    kept.answers.keep(StoredAnswer("ada", "k", NOW, b"d" * 32, 201, '[["Location", "/x"]]', b"{}"), 0)
    SqlLeases(kept.database).swap(VACANT, Lease("h", "head", 1, 1))
    return kept, file


FOLDERS: list[tempfile.TemporaryDirectory[str]] = []


def rows(table: str) -> list[dict[str, Any]]:
    """As they were stored."""
    with closing(sqlite3.connect(store()[1])) as connection:
        connection.row_factory = sqlite3.Row
        return [dict(row) for row in connection.execute(f"SELECT * FROM {table}")]


def changed(table: str, read: Callable[[Store], object]) -> Target:
    """One row of a table changed, column by column, and all read again."""
    sound = rows(table)

    def put(row: Any) -> bool:
        known = {name: row[name] for name in sound[0] if isinstance(row, dict) and name in row}
        if not known:
            return False
        columns = ", ".join(f'"{name}" = ?' for name in known)
        with closing(sqlite3.connect(store()[1], isolation_level=None)) as connection:
            connection.execute("PRAGMA synchronous = OFF")
            try:
                chosen = f"(SELECT MIN(rowid) FROM {table})"
                connection.execute(f"UPDATE {table} SET {columns} WHERE rowid = {chosen}", [*known.values()])
            except (sqlite3.Error, OverflowError, UnicodeEncodeError):  # the database does not take it
                return False
        return True

    def given(row: Any) -> None:
        try:
            if put(row):
                read(store()[0])
        finally:
            assert put(sound[0])

    return Target(f"stored: {table}", given, sound[:1])


def chains(kept: Store) -> None:
    """As a daemon that starts reads them."""
    found = SqlChainStore(kept.database, WriteBuffer(kept.database), kept.journal).load()
    assert all(record.chain.chain_id for record in found)


def columns(document: Any) -> None:
    """A snapshot whose head says something else, and is packed as it should be."""
    header = zlib.compress(json.dumps(document).encode())
    unpacked(HEAD.pack(b"MIRS", 1, len(header)) + header + BODIES, "the snapshot")


PACKED = packed(SNAPSHOT)
LENGTH = HEAD.unpack_from(PACKED)[2]
DOCUMENT = json.loads(zlib.decompress(PACKED[HEAD.size : HEAD.size + LENGTH]))
BODIES = PACKED[HEAD.size + LENGTH :]


def document(table: str, column: str, read: Callable[[Store], object]) -> Target:
    """The text of one column changed, letter by letter."""
    row = changed(table, read)
    return Target(f"stored: {table}, {column}", lambda text: row.read({column: text}), [rows(table)[0][column]])


READERS: dict[str, Callable[[Store], object]] = {
    "chains": chains,
    "links": chains,
    "outcomes": lambda kept: kept.outcomes.read(),
    "journal": lambda kept: (kept.journal.read(), kept.journal.since(0, 10)),
    "snapshots": lambda kept: list(kept.snapshots.read(0, 2 * NOW)),
    "waits": lambda kept: SqlWaitHistory(kept.database).recent_waits(10),
    "jobs": lambda kept: kept.jobs.read(0),
    "audit": lambda kept: kept.audit.read(),
    "tokens": lambda kept: kept.tokens.load(),
    "answers": lambda kept: kept.answers.find("ada", "k", 0),
    "leases": lambda kept: SqlLeases(kept.database).read(),
}

TARGETS = (
    *(changed(table, read) for table, read in READERS.items()),
    document("chains", "definition", chains),
    document("chains", "progress", chains),
    document("links", "document", chains),
    document("journal", "details", READERS["journal"]),
    Target("snapshot", partial(unpacked, where="the snapshot"), (PACKED,), names="the snapshot"),
    Target("snapshot's head", columns, (DOCUMENT,), names="the snapshot"),
)

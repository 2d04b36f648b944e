"""The chains and their links, durable; and their scripts, with environments and arguments.

Records in memory hold digests of scripts. Contents are found by their digest, so chains with the same script share
one row. A row goes with the last chain that uses it.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from itertools import groupby
from typing import TYPE_CHECKING

from sqlalchemy import delete, select, union, update

from mirage.documentreading import reader_of
from mirage.domain.errors import ConfigError, StoreUnavailable
from mirage.domain.script import ScriptReference, StoredScript, script_digests, script_size
from mirage.slurm.batchscript import plan_settings
from mirage.store.chainrows import change, record_of
from mirage.store.codec import from_text, plain_values, to_text
from mirage.store.tables import chains, insert_new, links, outcomes, scripts, upsert

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy import Connection

    from mirage.domain.chain import ChainId, ChainRecord
    from mirage.domain.job import BatchScript, JobRequest, Seconds
    from mirage.domain.journal import Entry
    from mirage.store.chainrows import ChainChange
    from mirage.store.database import Database
    from mirage.store.journal import SqlJournal
    from mirage.store.tables import Row
    from mirage.store.write_buffer import WriteBuffer

Contents = dict[str, bytes]
"""By digest."""


@dataclass(frozen=True, slots=True)
class _Surroundings:
    environment: tuple[tuple[str, str], ...]
    arguments: tuple[str, ...]


_SURROUNDINGS = reader_of(_Surroundings)


def detach_script(record: ChainRecord) -> tuple[ChainRecord, Contents]:
    """The record with a reference in place of its script, and what the reference stands for."""
    request = record.chain.request
    batch = request.batch
    if batch is None or isinstance(batch, StoredScript) or not script_size(batch):
        return record, {}
    text, surroundings = batch.text.encode("utf-8", "surrogatepass"), _surroundings(batch)
    digests = _digest(text), _digest(surroundings)
    arguments = script_digests(batch).arguments
    reference = ScriptReference(*digests, script_size(batch), plan_settings(batch), arguments)
    request = replace(request, batch=StoredScript.of(batch, reference))
    slim = replace(record, chain=replace(record.chain, request=request))
    return slim, dict(zip(digests, (text, surroundings), strict=True))


def restore_script(request: JobRequest, read: Callable[[str], bytes], where: str) -> JobRequest:
    """The request with its script; ``read`` gives the content of a digest. Raises ``ConfigError``, as it does."""
    batch = request.batch
    if not isinstance(batch, StoredScript):
        return request
    text = read(batch.reference.text).decode("utf-8", "surrogatepass")
    around = from_text(_SURROUNDINGS, read(batch.reference.environment).decode(), where)
    return replace(request, batch=batch.restored(text, around.environment, around.arguments))


def add_contents(connection: Connection, contents: Contents) -> None:
    """Add missing contents."""
    rows: list[Row] = [{"digest": digest, "content": content} for digest, content in contents.items()]
    insert_new(connection, scripts, rows)


def read_content(connection: Connection, digest: str, where: str) -> bytes:
    """What a digest stands for. Raises ``ConfigError`` where it is not there, or is something else."""
    content = connection.execute(select(scripts.c.content).where(scripts.c.digest == digest)).scalar()
    if content is None:
        raise ConfigError(where, f"script {digest[:12]} is missing; restore a backup")
    if not isinstance(content, bytes) or _digest(content) != digest:
        raise ConfigError(where, f"script {digest[:12]} is damaged; restore a backup")
    return content


def delete_unused(connection: Connection) -> None:
    """Delete what no chain uses."""
    used = union(select(chains.c.script), select(chains.c.environment))
    connection.execute(delete(scripts).where(scripts.c.digest.not_in(used)))


def _surroundings(batch: BatchScript) -> bytes:
    around = _Surroundings(batch.environment, batch.arguments)
    return to_text(plain_values(_SURROUNDINGS, around)).encode("ascii")


def _digest(content: bytes) -> str:
    return sha256(content).hexdigest()


Records = dict["ChainId", "ChainRecord"]


class SqlChainStore:
    """``ChainStore`` in a database that this process alone writes chains to.

    Read once and served from memory after that. After a write that failed the memory is thrown away and read
    again:
    it may be behind the database, and must never be ahead of it. Every thread may call ``load``.
    """

    def __init__(self, database: Database, outbox: WriteBuffer, journal: SqlJournal) -> None:
        self._database = database
        self._outbox = outbox
        self._journal = journal
        self._records: Records | None = None
        self._lock = threading.RLock()

    def load(self) -> tuple[ChainRecord, ...]:
        """Every chain, in order of creation. Raises ``StoreUnavailable``, and ``ConfigError`` for a record that
        another version of Mirage stored and this one cannot read."""
        with self._lock:
            return tuple(self._known().values())

    def save(self, record: ChainRecord, *entries: Entry) -> None:
        """Add or replace the record of one chain; on disk when it returns. Raises ``StoreUnavailable``.

        Only what differs from the record stored is written, and with it the handovers that this completes and
        ``entries`` of the journal. A script goes to the database alone: what ``load`` gives has none.
        """
        record, contents = detach_script(record)
        with self._lock:
            known = self._known()
            old = known.get(record.chain.chain_id)
            step = change(old, record)
            if step.nothing and not entries:
                return
            try:
                self._outbox.commit(
                    lambda connection: self._write(connection, step, contents, new=old is None),
                    [self._journal.row(entry) for entry in entries],
                )
            except BaseException:
                self._records = None
                raise
            known[record.chain.chain_id] = record
            self._outbox.owners[record.chain.chain_id] = record.chain.owner

    def with_script(self, request: JobRequest) -> JobRequest:
        """The request with its script. Raises ``StoreUnavailable``, and ``ConfigError`` for a damaged one."""
        where = f"{self._database.where}: {request.tag or request.name}"
        return self._database.read(
            lambda connection: restore_script(request, partial(read_content, connection, where=where), where)
        )

    def forget(self) -> None:
        """Read again at the next call: another process may have written meanwhile."""
        with self._lock:
            self._records = None

    def prune(self, before: Seconds, most_of_one: int = 0) -> int:
        """Forget chains that are over and whose last link was planned and ended before this; returns how many.

        Of one owner only the newest ``most_of_one`` that are over are kept (0: all of them).
        A chain that was over before its first link has no age and is kept.
        """
        with self._lock:
            known = self._known()
            old = [chain_id for chain_id, record in known.items() if _ended_before(record, before)]
            old += _beyond(known, most_of_one)
            if old:
                self._database.write(lambda connection: _delete(connection, old))
            self._records = {chain_id: known[chain_id] for chain_id in known if chain_id not in set(old)}
            self._know_owners(self._records)
            return len(old)

    def _known(self) -> Records:
        if self._records is None:
            self._records = self._database.read(self._read)
            self._know_owners(self._records)
        return self._records

    def _know_owners(self, known: Records) -> None:
        self._outbox.owners = {chain_id: record.chain.owner for chain_id, record in known.items()}

    def _read(self, connection: Connection) -> Records:
        of_chain = (
            select(links.c.chain_id, links.c.document)
            .join(chains, chains.c.chain_id == links.c.chain_id)
            .order_by(chains.c.sequence, links.c.index)
        )
        rows = connection.execute(of_chain)
        documents = {key: [text for _, text in group] for key, group in groupby(rows, lambda row: row[0])}
        c = chains.c
        in_order = select(c.chain_id, c.definition, c.progress).order_by(c.sequence)
        return {
            chain_id: record_of(
                definition, progress, documents.get(chain_id, ()), f"{self._database.where}: chain {chain_id}"
            )
            for chain_id, definition, progress in connection.execute(in_order)
        }

    def _write(self, connection: Connection, step: ChainChange, contents: Contents, *, new: bool) -> None:
        of_chain = {"chain_id": step.chain_id}
        if step.chain and "definition" in step.chain:
            add_contents(connection, contents)
        if step.chain and new:
            upsert(connection, chains, [step.chain], ["chain_id"])
        elif step.chain:
            done = connection.execute(update(chains).where(chains.c.chain_id == step.chain_id).values(step.chain))
            self._expect_there(done.rowcount, step.chain_id)
            if "definition" in step.chain:
                delete_unused(connection)
        upsert(connection, links, step.links, ["chain_id", "index"])
        connection.execute(delete(links).filter_by(**of_chain).where(links.c.index > step.links_kept))
        if step.outcomes_gone:
            stale = outcomes.c.predecessor.in_(step.outcomes_gone)
            connection.execute(delete(outcomes).filter_by(**of_chain).where(stale))
        upsert(connection, outcomes, step.outcomes, ["chain_id", "predecessor"])

    def _expect_there(self, rows: int, chain_id: ChainId) -> None:
        if rows != 1:
            where = self._database.where
            raise StoreUnavailable(
                f"{where}: another process removed chain {chain_id}; let one daemon alone use this database"
            )


def _delete(connection: Connection, old: Sequence[ChainId]) -> None:
    connection.execute(delete(chains).where(chains.c.chain_id.in_(old)))
    delete_unused(connection)


def _beyond(known: Records, most_of_one: int) -> list[ChainId]:
    """Return the oldest finished chains of each owner beyond ``most_of_one``."""
    by_owner: dict[str, list[ChainId]] = {}
    for chain_id, record in known.items():
        if record.over and not record.live:
            by_owner.setdefault(record.chain.owner, []).append(chain_id)
    return (
        [old for own in by_owner.values() for old in own[: max(0, len(own) - most_of_one)]] if most_of_one else []
    )


def _ended_before(record: ChainRecord, before: Seconds) -> bool:
    instants = [max(link.planned, link.end) for link in record.links]
    return record.over and not record.live and bool(instants) and max(instants) < before

"""The waits of jobs that have started: computed from two snapshots, and kept across restarts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import repeat
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import or_, select

from mirage.domain.decision import RecentWaits
from mirage.domain.job import ABSENT, NEVER, JobState
from mirage.domain.jobtable import JobTraits, Names, wait_began
from mirage.domain.texts import storable
from mirage.store.codec import whole_numbers
from mirage.store.tables import insert_new, waits

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from mirage.domain.job import JobId, Seconds
    from mirage.domain.snapshot import JobColumns, Snapshot
    from mirage.store.database import Database
    from mirage.store.tables import Row

Int64 = NDArray[np.int64]

_CLOCKS_APART: Seconds = 300
"""Slurm's clock and ours may differ; munge rejects to work beyond this."""


@dataclass(frozen=True, slots=True)
class StartedJobs:
    """Jobs that have started, as columns of equal length, in any order.

    A job is known by its id and its submission: a requeued job is submitted again.
    """

    job_id: Int64
    submit: Int64
    start: Int64
    """Never before ``submit``."""
    nodes: Int64
    limit: Int64
    """Requested walltime in seconds."""
    partition: Int64
    """Codes into ``partition_names``; -1: not known."""
    partition_names: tuple[str, ...]
    traits: JobTraits | None = None
    """``None``: not known of any."""
    eligible: Int64 | None = None
    """When each became eligible; ``ABSENT``, or ``None`` of all: not known; ``NEVER``: its wait does not count."""

    def __len__(self) -> int:
        return len(self.job_id)

    def without(self, ids: Collection[int]) -> StartedJobs:
        """Those that are none of these jobs."""
        rows = np.flatnonzero(~np.isin(self.job_id, list(ids)))
        if len(rows) == len(self):
            return self
        traits = self.traits.take(rows) if self.traits is not None else None
        eligible = self.eligible[rows] if self.eligible is not None else None
        return StartedJobs(
            self.job_id[rows],
            self.submit[rows],
            self.start[rows],
            self.nodes[rows],
            self.limit[rows],
            self.partition[rows],
            self.partition_names,
            traits,
            eligible,
        )

    def check(self) -> None:
        """Raise ``ValueError`` where columns differ in length or a job starts before it was submitted."""
        columns = (self.submit, self.start, self.nodes, self.limit, self.partition)
        lengths = {len(column) for column in columns}
        lengths |= {len(column) for column in (self.traits, self.eligible) if column is not None}
        if lengths != {len(self)}:
            raise ValueError("the columns of started jobs differ in length")
        if bool(np.any(self.start < self.submit)):
            first = int(self.job_id[np.argmax(self.start < self.submit)])
            raise ValueError(f"job {first} starts before it was submitted")


def started(previous: Snapshot, current: Snapshot) -> StartedJobs:
    """The jobs that run in ``current`` and had not started when ``previous`` was taken.

    A job that started and ended in between is not seen; accounting knows those. Snapshots without a queue and
    those that are stale give and take nothing: what merely was not looked at did not start just now, and counting
    it would favour jobs that run long. Links that were bound to their predecessors' nodes have waited for these,
    whatever the queue: they are marked as never eligible, and their waits do not count.
    """
    running = current.running
    new = ~_among(running, previous.running) & (running.start >= previous.time - _CLOCKS_APART)
    new &= (running.submit >= 0) & (running.start >= running.submit)
    if current.stale:
        new[:] = False
    return StartedJobs(
        running.job_id[new],
        running.submit[new],
        running.start[new],
        running.nodes[new],
        running.limit[new],
        running.partition[new],
        current.partition_names,
        _traits(current, new),
        np.where(np.isin(running.job_id[new], _bound(previous)), NEVER, running.eligible[new]),
    )


def _bound(snapshot: Snapshot) -> list[int]:
    """Links that wait for nodes by name, of whatever daemon."""
    links = (*snapshot.links.values(), *snapshot.rivals)
    return [int(job.job_id) for job in links if job.state is JobState.PENDING and job.node_list]


def _traits(snapshot: Snapshot, chosen: NDArray[np.bool_]) -> JobTraits:
    """Those of the chosen running jobs; account and GRES are among the labels, which may lack a job."""
    running, labels = snapshot.running, snapshot.labels
    qos = Names(running.qos[chosen].astype(np.int32), snapshot.qos_names)
    rows = _rows(labels.job_id, running.job_id[chosen])
    if not len(labels.job_id):
        return replace(JobTraits.unknown(len(rows)), qos=qos)
    codes = {name: np.where(rows >= 0, getattr(labels, name).codes[rows], -1) for name in ("account", "gres")}
    texts = {name: replace(getattr(labels, name), codes=found) for name, found in codes.items()}
    counts = np.where(rows >= 0, labels.gres_per_node[rows], ABSENT)
    return JobTraits(qos=qos, gres_per_node=counts, **texts)


def _rows(known: Int64, wanted: Int64) -> Int64:
    """Return the position of each of ``wanted`` in ``known``; -1 if missing."""
    if not len(known) or not len(wanted):
        return np.full(len(wanted), -1, dtype=np.int64)
    candidates = np.flatnonzero(np.isin(known, wanted))
    if not len(candidates):
        return np.full(len(wanted), -1, dtype=np.int64)
    order = candidates[np.argsort(known[candidates], kind="stable")]
    at = order[np.minimum(np.searchsorted(known[order], wanted), len(order) - 1)]
    return np.where(known[at] == wanted, at, -1)


def _among(jobs: JobColumns, known: JobColumns) -> NDArray[np.bool_]:
    """Which jobs are among the known ones, with the same start."""
    if not len(known):
        return np.zeros(len(jobs), dtype=np.bool_)
    order = np.argsort(known.job_id, kind="stable")
    ids, starts = known.job_id[order], known.start[order]
    at = np.minimum(np.searchsorted(ids, jobs.job_id), len(ids) - 1)
    same: NDArray[np.bool_] = (ids[at] == jobs.job_id) & (starts[at] == jobs.start)
    return same


_BATCH = 10_000
_REMEMBERED = 500_000
"""Waits that stay in memory at most, some 40 MB, whatever is asked for."""
_OVERHEAD = 100
"""Cost of a cached result in addition to its waits: there may be many empty ones."""
_MOST_REMEMBERED = 10_000
"""Most waits of a cached result; longer ones are for rare measurements."""
_OF_CLASS = 500
"""Further jobs of a class, at most, from before the partition's last ones."""
_NONE = RecentWaits.none()
_TEXTS = ("account", "qos", "gres")
_NUMBERS = ("start", "submit", "nodes", "limit", "gres_per_node", "eligible")
_Key = tuple[str, str, str, int]
"""Partition, GRES and QOS, and how many of them."""


class SqlWaitHistory:
    """``WaitHistory`` of a daemon. Every thread may use it.

    The latest waits asked for stay in memory, by class, until more jobs are added.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._added = 0
        self._latest: dict[_Key, tuple[int, RecentWaits]] = {}
        """At which count of additions it was read, what there was."""

    def add(self, jobs: StartedJobs) -> None:
        """Keep these waits; jobs known already are left as they are. On disk when it returns.

        Written in batches of 10,000, so that seeding a long history does not keep others waiting. Raises
        ``ValueError`` for jobs that cannot be (``StartedJobs.check``), and ``StoreUnavailable``.
        """
        jobs.check()
        for rows in _batches(jobs):
            self._database.write(lambda connection, rows=rows: insert_new(connection, waits, rows))  # type: ignore[misc]
            self._added += 1

    def recent_waits(self, count: int, partition: str = "", gres: str = "", qos: str = "") -> RecentWaits:
        """The last ``count`` jobs of a partition started, oldest first; fewer where fewer are known.

        With both ``gres`` and ``qos``, up to 500 older ones of just these come before: others may have been many.
        Comma-separated several partitions; empty: of all. Raises ``StoreUnavailable``.
        """
        last = self._remembered((partition, "", "", count))
        if not (gres and qos and partition and 0 < len(last) == count):
            return last
        return _joined(self._remembered((partition, gres, qos, _OF_CLASS), int(last.start[0])), last)

    def partition_of(self, job_id: JobId) -> str:
        """Where a job that has started ran; empty: that is not known. Raises ``StoreUnavailable``."""
        c = waits.c
        last = select(c.partition).where(c.job_id == job_id).order_by(c.submit.desc()).limit(1)
        return self._database.read(lambda connection: connection.execute(last).scalar()) or ""

    def _remembered(self, key: _Key, before: Seconds = NEVER) -> RecentWaits:
        added = self._added
        read_at, found = self._latest.get(key, (-1, _NONE))
        if read_at == added:
            return found
        found = self._read(key, before)
        if len(found) <= _MOST_REMEMBERED:
            kept = {known: each for known, each in self._latest.items() if each[0] == added}
            if sum(len(waits) + _OVERHEAD for _, waits in kept.values()) > _REMEMBERED:
                kept = {}
            self._latest = kept | {key: (added, found)}
        return found

    def _read(self, key: _Key, before: Seconds) -> RecentWaits:
        partition, gres, qos, count = key
        c = waits.c
        queries = []
        # One for each partition: so each reads no more rows than it gives.
        for name in partition.split(",") if partition else ("",):
            query = select(*(c[column] for column in (*_NUMBERS, "job_id", *_TEXTS))).where(c.start < before)
            query = query.where(or_(c.eligible.is_(None), c.eligible != NEVER))
            query = query.where(c.partition == storable(name)) if name else query
            query = query.where(c.gres == storable(gres), c.qos == storable(qos)) if gres else query
            queries.append(query.order_by(c.start.desc(), c.job_id.desc(), c.submit.desc()).limit(count))
        found = self._database.read(lambda connection: [connection.execute(query).all() for query in queries])
        cells = [tuple(row) for rows in found for row in reversed(rows)]
        if len(found) > 1:
            cells = sorted(set(cells), key=lambda row: (row[0], row[len(_NUMBERS)], row[1]))
        return _waits(cells[-count:], partition, f"{self._database.where}, waits")


def _waits(cells: list[tuple[Any, ...]], partition: str, where: str) -> RecentWaits:
    numbers = [[ABSENT if cell is None else cell for cell in row[: len(_NUMBERS)]] for row in cells]
    table = whole_numbers(numbers, np.int64, where).reshape(-1, len(_NUMBERS))
    start, submit, nodes, limit, gres_per_node, eligible = (np.ascontiguousarray(column) for column in table.T)
    account, qos, gres = (Names.encode([row[place] or "" for row in cells]) for place in range(-len(_TEXTS), 0))
    traits = JobTraits(account, qos, gres, gres_per_node)
    return RecentWaits(start, start - wait_began(submit, eligible, start), nodes, limit, partition, traits)


def _joined(older: RecentWaits, newer: RecentWaits) -> RecentWaits:
    if not len(older):
        return newer
    return replace(
        newer,
        start=np.concatenate([older.start, newer.start]),
        wait=np.concatenate([older.wait, newer.wait]),
        nodes=np.concatenate([older.nodes, newer.nodes]),
        limit=np.concatenate([older.limit, newer.limit]),
        traits=older.traits.followed_by(newer.traits),
    )


def _batches(jobs: StartedJobs) -> Iterator[list[Row]]:
    names = (*jobs.partition_names, "")
    columns = (jobs.job_id, jobs.submit, jobs.start, jobs.nodes, jobs.limit, jobs.partition)
    for first in range(0, len(jobs), _BATCH):
        rows = slice(first, first + _BATCH)
        part = zip(*(column[rows].tolist() for column in columns), strict=True)
        traits = _trait_cells(jobs.traits.take(rows)) if jobs.traits is not None else repeat({})
        eligible = repeat(None) if jobs.eligible is None else map(_known, jobs.eligible[rows].tolist())
        yield [
            {"job_id": i, "submit": submit, "start": start, "nodes": n, "limit": limit, "partition": names[code]}
            | {"account": None, "qos": None, "gres": None, "gres_per_node": None, "eligible": since}
            | of_traits
            for (i, submit, start, n, limit, code), of_traits, since in zip(part, traits, eligible, strict=False)
        ]


def _known(instant: Seconds) -> Seconds | None:
    return instant if instant > 0 else None


def _trait_cells(traits: JobTraits) -> Iterator[Row]:
    """Unknown values are null."""
    texts = [[storable(text) or None for text in getattr(traits, name).decode()] for name in _TEXTS]
    for account, qos, gres, count in zip(*texts, traits.gres_per_node.tolist(), strict=True):
        yield {"account": account, "qos": qos, "gres": gres, "gres_per_node": count if count >= 0 else None}

"""The waits of jobs that have started, kept across restarts."""

from __future__ import annotations

from dataclasses import replace
from itertools import repeat
from typing import TYPE_CHECKING, Any

import numpy as np
from sqlalchemy import or_, select

from mirage.domain.decision import RecentWaits
from mirage.domain.job import ABSENT, NEVER
from mirage.domain.jobtable import Names, wait_began
from mirage.domain.jobtraits import JobTraits
from mirage.domain.texts import storable
from mirage.store.codec import whole_numbers
from mirage.store.tables import waits
from mirage.store.upserts import insert_new

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirage.domain.job import JobId, Seconds
    from mirage.store.database import Database
    from mirage.store.upserts import Row
    from mirage.store.waits import StartedJobs

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

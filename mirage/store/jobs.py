"""The jobs of all users from accounting, stored and in memory: the data of look-ahead and training."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
from sqlalchemy import select

from mirage.domain.jobtable import Names, job_table
from mirage.domain.texts import storable
from mirage.slurm.tres import parse_tres
from mirage.store.codec import whole_numbers
from mirage.store.tables import jobs, upsert

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sqlalchemy import Connection

    from mirage.domain.job import Seconds
    from mirage.domain.jobtable import JobTable
    from mirage.ports import Clock
    from mirage.store.database import Database
    from mirage.store.tables import Row


class StoredJobs:
    """What the archive held when it was last read.

    It is read when a longer span is requested than before, and by ``refresh``. The importer of jobs calls
    ``refresh`` from a separate thread: the loop does not wait for it, and sees the old table until it is done.
    """

    def __init__(self, archive: JobArchive, clock: Clock) -> None:
        self._archive = archive
        self._clock = clock
        self._span: Seconds = 0
        self._known = job_table(0)
        self._reading = Lock()

    def jobs(self, span: Seconds) -> JobTable:
        """The jobs submitted within the last ``span`` seconds. Raises ``StoreUnavailable``."""
        if span > self._span:
            with self._reading:
                self._read(span)
        known = self._known
        first = int(np.searchsorted(known.submit, self._clock.now() - span))
        return known.take(np.arange(first, len(known))) if first else known

    def refresh(self) -> None:
        """Take in what was added; nothing happens until jobs are asked for. Raises ``StoreUnavailable``."""
        if self._span:
            with self._reading:
                self._read(self._span)

    def _read(self, span: Seconds) -> None:
        self._known = self._archive.read(self._clock.now() - span)
        self._span = span


MOST_READ = 500_000
"""Jobs of one answer: of more, the last submitted. Users choose how many jobs there are."""
_BATCH = 10_000
_NUMBERS = {
    **dict.fromkeys(("submit", "eligible", "start", "end", "limit", "memory_mb"), np.int64),
    **dict.fromkeys(("nodes", "cpus"), np.int32),
    "state": np.int8,
}
_TEXTS = ("user", "account", "partition", "qos", "name", "constraint")
_KEY = ("job_id", "submit")


class JobArchive:
    """Jobs by id and submission: a requeued job is submitted again. Every thread may use it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, table: JobTable) -> None:
        """Store these jobs; known jobs are replaced. On disk on return.

        Left out are those whose ids are no plain numbers. Written in batches of 10,000. Raises
        ``StoreUnavailable``.
        """
        plain = np.char.isdigit(table.job_id) if len(table) else np.zeros(0, dtype=bool)
        for rows in _batches(table.take(np.flatnonzero(plain))):
            self._database.write(lambda connection, rows=rows: upsert(connection, jobs, rows, _KEY))  # type: ignore[misc]

    def read(self, since: Seconds) -> JobTable:
        """The last ``MOST_READ`` jobs submitted at ``since`` or later, in order of submission.

        Raises ``StoreUnavailable``.
        """
        return self._database.read(lambda connection: _read(connection, since, f"{self._database.where}, jobs"))


def _batches(table: JobTable) -> Iterator[list[Row]]:
    columns: dict[str, list[Any]] = {"job_id": table.job_id.astype(np.int64).tolist()}
    columns |= {name: getattr(table, name).tolist() for name in _NUMBERS}
    columns |= {name: [storable(text) for text in getattr(table, name).decode()] for name in _TEXTS}
    columns["gres"] = _gres_texts(table)
    for first in range(0, len(table), _BATCH):
        part = zip(*(column[first : first + _BATCH] for column in columns.values()), strict=True)
        yield [dict(zip(columns, cells, strict=True)) for cells in part]


def _gres_texts(table: JobTable) -> list[str]:
    """As Slurm's TRES: ``gres/gpu:a100=4``."""
    names = [f"gres/{name}" for name in table.gres_names]
    return [
        ",".join(f"{name}={count}" for name, count in zip(names, row, strict=True) if count)
        for row in table.gres.tolist()
    ]


def _read(connection: Connection, since: Seconds, where: str) -> JobTable:
    newest = select(*(jobs.c[name] for name in ("job_id", *_NUMBERS, *_TEXTS, "gres")))
    newest = newest.where(jobs.c.submit >= since).order_by(jobs.c.submit.desc(), jobs.c.job_id.desc())
    last = newest.limit(MOST_READ).subquery()
    query = select(last).order_by(last.c.submit, last.c.job_id)
    texts = {name: _Coded() for name in (*_TEXTS, "gres")}
    numbers: dict[str, list[Any]] = {name: [] for name in ("job_id", *_NUMBERS)}
    result = connection.execution_options(stream_results=True).execute(query)
    for part in result.partitions(_BATCH):
        cells = dict(zip(result.keys(), zip(*part, strict=True), strict=True))
        for name, column in numbers.items():
            column.append(whole_numbers(cells[name], _NUMBERS.get(name, np.int64), where))
        for name, coded in texts.items():
            coded.add(cells[name])
    return _table({name: _joined(column, name) for name, column in numbers.items()}, texts)


def _joined(parts: list[Any], name: str) -> Any:
    return np.concatenate(parts) if parts else np.empty(0, dtype=_NUMBERS.get(name, np.int64))


def _table(numbers: dict[str, Any], texts: dict[str, _Coded]) -> JobTable:
    gres = texts.pop("gres")
    ids = numbers.pop("job_id").astype(np.str_)
    amounts = [dict(parse_tres(text)) for text in gres.index]
    names = sorted({name for each in amounts for name in each})
    matrix = [[each.get(name, 0) for name in names] for each in (*amounts, {})]
    return job_table(
        len(ids),
        job_id=ids,
        **numbers,
        **{name: coded.names() for name, coded in texts.items()},
        gres=np.array(matrix, dtype=np.int32).reshape(len(matrix), len(names))[gres.names().codes],
        gres_names=tuple(name.removeprefix("gres/") for name in names),
        source="store",
    )


class _Coded:
    """Texts as codes, part by part."""

    def __init__(self) -> None:
        self.index: dict[str, int] = {}
        self._parts: list[Any] = []

    def add(self, cells: Sequence[str]) -> None:
        known = self.index
        codes = (known.setdefault(text, len(known)) if text else -1 for text in cells)
        self._parts.append(np.fromiter(codes, dtype=np.int32, count=len(cells)))

    def names(self) -> Names:
        codes = np.concatenate(self._parts) if self._parts else np.empty(0, dtype=np.int32)
        return Names(codes, tuple(self.index))

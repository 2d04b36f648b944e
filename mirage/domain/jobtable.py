"""Jobs as columns: the table that every trace importer produces and every replay reads; traits, labels, series.

Traits decide how long a job waits besides its size and time limit: account, QOS, generic resources. Labels are
what a snapshot knows of its jobs besides the columns: names, accounts, their part of shared nodes. A series
consists of the jobs that one user submits repeatedly under one name, counters in the name aside.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from mirage.domain.job import ABSENT, NO_GRES
from mirage.domain.texts import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_DIGITS = re.compile("[0-9]+")
_SPREAD = np.int64(0x1F0D3804B2E6A5C7)

Int64 = NDArray[np.int64]


def hashed_users(users: Iterable[str]) -> Int64:
    """One number for each user, equal on every machine."""
    return np.array([_hashed(user) for user in users], dtype=np.int64)


def hashed_names(names: Iterable[str]) -> Int64:
    """One number for each job name; ``run-7`` and ``run-12`` have the same."""
    return np.array([_hashed_name(name) for name in names], dtype=np.int64)


def series_of(user: Int64, name: Int64) -> Int64:
    """The series of each job, from the numbers of its user and its name: within 32 bits, so that it packs well."""
    mixed = user * _SPREAD + name
    folded: Int64 = (mixed ^ (mixed >> 32)) & 0xFFFF_FFFF
    return folded


def _hashed(text: str) -> int:
    return int.from_bytes(
        blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest(), "little", signed=True
    )


@lru_cache(maxsize=1 << 18)
def _hashed_name(name: str) -> int:
    """Kept: the same names come again with every look at the queue."""
    return _hashed(_DIGITS.sub("#", name))


Int32 = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Names:
    """A dictionary-encoded text column: ``codes[i]`` indexes ``vocabulary``; -1 where the source has none."""

    codes: Int32
    vocabulary: tuple[str, ...]

    @classmethod
    def encode(cls, values: list[str]) -> Self:
        """Encode ``values``; the empty string becomes -1. The vocabulary keeps the order of appearance."""
        index: dict[str, int] = {}
        codes = np.fromiter(
            (index.setdefault(v, len(index)) if v else -1 for v in values), dtype=np.int32, count=len(values)
        )
        return cls(codes, tuple(index))

    @classmethod
    def absent(cls, count: int) -> Self:
        """A column of ``count`` rows that the source does not have."""
        return cls(np.full(count, -1, dtype=np.int32), ())

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, row: int) -> str:
        code = int(self.codes[row])
        return self.vocabulary[code] if code >= 0 else ""

    def take(self, rows: NDArray[Any]) -> Self:
        """The same vocabulary, other rows (an index array, mask)."""
        return replace(self, codes=self.codes[rows])

    def decode(self) -> list[str]:
        """The values as text, "" where absent."""
        return [self.vocabulary[c] if c >= 0 else "" for c in self.codes]


@dataclass(frozen=True, slots=True)
class JobTable:
    """Jobs as columns of equal length, sorted by (submit, row order in the source).

    Times are seconds since the Unix epoch (or from the trace's own zero where the source has no
    calendar); ``ABSENT`` (-1) where the source has none. ``start`` ABSENT: the job never ran, and ``end``
    is when it left the queue. ``limit`` is the requested walltime in seconds. ``cpus`` and each column of
    ``gres`` are totals over all nodes of the job.
    """

    job_id: NDArray[np.str_]
    """Job ID as the source prints it: ``123``, ``123_4`` (array task), ``123+1`` (het component)."""
    user: Names
    account: Names
    partition: Names
    qos: Names
    name: Names
    submit: Int64
    eligible: Int64
    start: Int64
    end: Int64
    limit: Int64
    nodes: Int32
    cpus: Int32
    memory_mb: Int64
    state: NDArray[np.int8]
    """``JobState`` numbers."""
    exit_code: Int32
    priority: Int64
    gres: Int32
    """Shape (jobs, len(gres_names)); 0 where not asked."""
    gres_names: tuple[str, ...]
    """GRES name such as ``gpu``, ``gpu:a100``, ``npu``."""
    constraint: Names
    """Node features as asked, ``&`` between them."""
    node_list: Names
    """Slurm's host list of the nodes it ran on."""
    source: str = ""
    """Source of the table, for messages."""
    origin: int = 0
    """Unix time of the trace's second 0 where times are relative; 0 where they are epoch seconds."""
    notes: tuple[str, ...] = field(default=())
    """Changes and unknown values of the import, in sentences."""

    def __post_init__(self) -> None:
        """Source and notes are shown to people, and come from files of others."""
        object.__setattr__(self, "source", printable(self.source))
        object.__setattr__(self, "notes", tuple(map(printable, self.notes)))

    def __len__(self) -> int:
        return len(self.submit)

    def take(self, rows: NDArray[Any]) -> JobTable:
        """The chosen rows (index array or mask), in that order."""
        changes: dict[str, Any] = {}
        for f in fields(self):
            value = getattr(self, f.name)
            if isinstance(value, np.ndarray):
                changes[f.name] = value[rows]
            elif isinstance(value, Names):
                changes[f.name] = value.take(rows)
        return replace(self, **changes)

    @property
    def runtime(self) -> Int64:
        """Seconds each job ran; 0 where it never started or has not ended."""
        ran = (self.start != ABSENT) & (self.end != ABSENT)
        return np.where(ran, self.end - self.start, 0)

    @property
    def wait(self) -> Int64:
        """Seconds from submission to start; ABSENT where it never started."""
        return np.where(self.start != ABSENT, self.start - self.submit, ABSENT)


def wait_began(submit: Int64, eligible: Int64, start: Int64) -> Int64:
    """From when only the queue kept jobs from starting; shapes alike.

    A job that is held, depends on another one or is to begin later is not eligible; that time says nothing of the
    queue, and any user can make it long. Where it is not known when it became eligible: its submission.
    """
    known = (eligible > submit) & (eligible <= start)
    return np.where(known, eligible, submit)


def job_table(count: int, **columns: Any) -> JobTable:
    """A ``JobTable`` of ``count`` rows from the columns given; the others are absent (or 0 for resources).

    Rows are put in order of submission (stable). Raises ``ValueError`` for a column of another length.
    """
    full64 = np.full(count, ABSENT, dtype=np.int64)
    full32 = np.full(count, ABSENT, dtype=np.int32)
    defaults: dict[str, Any] = {
        "job_id": np.arange(1, count + 1).astype(np.str_),
        **{name: Names.absent(count) for name in _NAME_COLUMNS},
        **dict.fromkeys(("submit", "eligible", "start", "end", "limit", "priority", "memory_mb"), full64),
        "nodes": full32,
        "cpus": full32,
        "exit_code": np.zeros(count, dtype=np.int32),
        "state": np.zeros(count, dtype=np.int8),
        "gres": np.zeros((count, len(columns.get("gres_names", ()))), dtype=np.int32),
        "gres_names": (),
    }
    table = JobTable(**(defaults | columns))
    for f in fields(table):
        value = getattr(table, f.name)
        if isinstance(value, np.ndarray | Names) and len(value) != count:
            raise ValueError(f"column {f.name} has {len(value)} rows, expected {count}")
    return table.take(np.argsort(table.submit, kind="stable"))


_NAME_COLUMNS = ("user", "account", "partition", "qos", "name", "constraint", "node_list")


GresColumns = tuple[Names, Int64]
"""Kinds, and how many of the first a node has."""
SizeColumns = tuple[Int64, Int64]
"""CPUs and megabytes over all nodes of each job."""


@dataclass(frozen=True, slots=True)
class JobTraits:
    """Columns of equal length; a code of -1 and a count of ``ABSENT``: not known."""

    account: Names
    qos: Names
    gres: Names
    """Kinds as ``gres_class`` writes them, such as ``gpu:a100`` and ``none``."""
    gres_per_node: Int64
    """Number of GRES of the first kind per node."""

    @classmethod
    def unknown(cls, count: int) -> JobTraits:
        """Traits of ``count`` jobs of which nothing is known."""
        absent = Names.absent(count)
        return cls(absent, absent, *unknown_gres(count))

    def __len__(self) -> int:
        return len(self.gres_per_node)

    def take(self, rows: NDArray[Any] | slice) -> JobTraits:
        """The chosen rows, in that order."""
        account, qos, gres = (
            Names(column.codes[rows], column.vocabulary) for column in (self.account, self.qos, self.gres)
        )
        return JobTraits(account, qos, gres, self.gres_per_node[rows])

    def followed_by(self, other: JobTraits) -> JobTraits:
        """Return the rows of this table, then those of ``other``."""
        pairs = ((self.account, other.account), (self.qos, other.qos), (self.gres, other.gres))
        account, qos, gres = (Names.encode([*first.decode(), *second.decode()]) for first, second in pairs)
        return JobTraits(account, qos, gres, np.concatenate([self.gres_per_node, other.gres_per_node]))


def unknown_gres(count: int) -> GresColumns:
    """The generic resources of ``count`` jobs of which they are not known."""
    return Names.absent(count), np.full(count, ABSENT, dtype=np.int64)


def unknown_sizes(count: int) -> SizeColumns:
    """CPUs and memory of ``count`` jobs of which they are not known."""
    return np.full(count, ABSENT, dtype=np.int64), np.full(count, ABSENT, dtype=np.int64)


def gres_columns(found: Sequence[tuple[str, int]]) -> GresColumns:
    """The ``gres_class`` of each job. Unknown where no job has any: perhaps Slurm does not record them."""
    if all(kinds == NO_GRES for kinds, _ in found):
        return unknown_gres(len(found))
    return Names.encode([kinds for kinds, _ in found]), np.array([count for _, count in found], dtype=np.int64)


@dataclass(frozen=True, slots=True)
class JobLabels:
    """Columns of equal length, in any order; the tasks of a pending array have one row."""

    job_id: NDArray[np.int64]
    name: Names
    account: Names
    gres: Names
    """Kinds of generic resources, as ``mirage.domain.jobtable`` writes them; -1: not known."""
    gres_per_node: NDArray[np.int64]
    cpus: NDArray[np.int64]
    """Over all nodes of the job; ``ABSENT``: not known."""
    memory_mb: NDArray[np.int64]
    """The same."""

    @classmethod
    def of_texts(
        cls,
        job_id: NDArray[np.int64],
        names: Iterable[str],
        accounts: Iterable[str],
        gres: GresColumns | None = None,
        sizes: SizeColumns | None = None,
    ) -> JobLabels:
        """From one text a job; empty: it has none. Without ``gres`` or ``sizes``: they are not known."""
        columns = gres if gres is not None else unknown_gres(len(job_id))
        taken = sizes if sizes is not None else unknown_sizes(len(job_id))
        return cls(job_id, Names.encode(list(names)), Names.encode(list(accounts)), *columns, *taken)

    @classmethod
    def none(cls) -> JobLabels:
        """Return empty columns: the labels of no job are known."""
        texts = Names.absent(0), Names.absent(0)
        return cls(np.empty(0, dtype=np.int64), *texts, *unknown_gres(0), *unknown_sizes(0))

    def rows_of(self, wanted: NDArray[np.int64]) -> NDArray[np.int64]:
        """The row of each of these jobs, by their ids; -1: nothing is known of it."""
        if not len(self.job_id):
            return np.full(len(wanted), -1, dtype=np.int64)
        order = np.argsort(self.job_id, kind="stable")
        at = order[np.minimum(np.searchsorted(self.job_id[order], wanted), len(order) - 1)]
        found: NDArray[np.int64] = np.where(self.job_id[at] == wanted, at, -1)
        return found

    def of(self, wanted: Iterable[int]) -> dict[int, tuple[str, str]]:
        """Name and account of these jobs, by their ids; those that are not known are left out."""
        ids = np.fromiter(wanted, dtype=np.int64)
        rows = np.flatnonzero(np.isin(self.job_id, ids)).tolist()
        return {int(self.job_id[row]): (self.name[row], self.account[row]) for row in rows}

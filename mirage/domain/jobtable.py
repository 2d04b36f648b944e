"""The columnar job table: what every trace importer produces and every replay reads."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from mirage.domain.job import ABSENT
from mirage.domain.texts import printable

Int64 = NDArray[np.int64]
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

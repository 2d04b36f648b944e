"""What an import gives back: the table, an account of everything that is not in it, and errors of rows."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mirage.domain.errors import TraceError
from mirage.domain.job import ABSENT, JobState
from mirage.domain.jobtable import JobTable, Names, job_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirage.domain.jobtable import Int64

Mask = NDArray[np.bool_]


class Strictness(StrEnum):
    """What a bad row does to the import."""

    STRICT = "strict"
    """The first one ends it with a ``TraceError``."""
    LENIENT = "lenient"
    """It is left out, counted and reported."""


@dataclass(frozen=True, slots=True)
class RejectedRow:
    """A row that was left out, and why."""

    line: int
    """1-based line of the file; in a parquet file the 1-based row."""
    field: str
    """Empty: the row as a whole."""
    problem: str


@dataclass(slots=True)
class RowErrors:
    """Collects the first error of each row while columns are read."""

    path: str
    lines: NDArray[np.int64]
    """Line of each row that was cut into fields."""
    _rows: dict[int, RejectedRow] = field(default_factory=dict)
    _broken: list[RejectedRow] = field(default_factory=list)

    def add(self, row: int, column: str, problem: str) -> None:
        """Note what is wrong with one field of a row."""
        self._rows.setdefault(row, RejectedRow(int(self.lines[row]), column, problem))

    def add_where(self, bad: Mask, column: str, problem: Callable[[int], str]) -> None:
        """Add an error to every row of a mask; ``problem`` returns the text for a row."""
        for row in np.flatnonzero(bad).tolist():
            self.add(row, column, problem(row))

    def add_line(self, line: int, problem: str) -> None:
        """Note a line that could not be cut into fields at all."""
        self._broken.append(RejectedRow(line, "", problem))

    @property
    def good(self) -> Mask:
        """Return the rows without an error so far."""
        good = np.ones(len(self.lines), dtype=bool)
        good[list(self._rows)] = False
        return good

    def settle(self, strictness: Strictness) -> tuple[RejectedRow, ...]:
        """The rejected rows in file order; raises ``TraceError`` for the first one where strict."""
        rejected = sorted([*self._broken, *self._rows.values()], key=lambda row: row.line)
        if rejected and strictness is Strictness.STRICT:
            first = rejected[0]
            raise TraceError(self.path, first.line, first.field, first.problem)
        return tuple(rejected)


_NUMBER = re.compile(r"[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class SwfHeader:
    """The header comments of a Standard Workload Format file, in order."""

    entries: tuple[tuple[str, str], ...] = ()

    def get(self, name: str) -> str:
        """Return the value of a header field such as ``Computer``, or an empty text."""
        return next((value for key, value in self.entries if key.lower() == name.lower()), "")

    def number(self, name: str) -> int:
        """Return a field as an integer (``MaxProcs``), or ``ABSENT``."""
        first = self.get(name).split()[:1]
        return int(first[0]) if first and _NUMBER.fullmatch(first[0]) else ABSENT


@dataclass(frozen=True, slots=True)
class ImportCounts:
    """``rows`` = rows that became jobs + ``rejected`` + ``steps`` + ``partial`` + ``repeated``."""

    rows: int
    """Rows of data in the file."""
    jobs: int
    """Jobs in the table; more than the rows where pending arrays were expanded."""
    rejected: int = 0
    steps: int = 0
    """sacct: rows of job steps, which are not jobs."""
    partial: int = 0
    """SWF: parts of jobs that have a row as a whole."""
    repeated: int = 0
    """sacct: records that stand twice, in dumps that overlap."""


@dataclass(frozen=True, slots=True)
class ImportResult:
    """A job table and an account of what did not get into it."""

    table: JobTable
    rejected: tuple[RejectedRow, ...]
    counts: ImportCounts
    header: SwfHeader = SwfHeader()
    """Empty for other formats."""


@dataclass(frozen=True, slots=True)
class FieldNames:
    """What a format calls the fields that can contradict each other."""

    submit: str
    start: str
    end: str
    limit: str
    nodes: str


def take_columns(columns: dict[str, Any], rows: Int64 | Mask) -> dict[str, Any]:
    """The same columns, other rows; anything that is no column is left as it is."""
    return {
        name: value.take(rows)
        if isinstance(value, Names)
        else value[rows]
        if isinstance(value, np.ndarray)
        else value
        for name, value in columns.items()
    }


def finish(
    columns: dict[str, Any], faults: RowErrors, names: FieldNames, strictness: Strictness
) -> tuple[JobTable, tuple[RejectedRow, ...]]:
    """Check the rows against themselves, then put the good ones into a table.

    ``columns`` are as of ``job_table``; ``submit``, ``start`` and ``end`` must be there.
    """
    find_contradictions(columns, faults, names)
    rejected = faults.settle(strictness)
    good = faults.good
    return job_table(int(good.sum()), **take_columns(columns, good)), rejected


def find_contradictions(columns: dict[str, Any], faults: RowErrors, names: FieldNames) -> None:
    """Add an error to each row with contradictory fields."""
    submit, start, end = columns["submit"], columns["start"], columns["end"]
    ran, ended = start != ABSENT, end != ABSENT
    faults.add_where(
        submit == ABSENT, names.submit, lambda _: "missing: it is not known when the job was submitted"
    )
    faults.add_where(
        ran & (start < submit), names.start, lambda r: f"is {submit[r] - start[r]} s before the job was submitted"
    )
    faults.add_where(
        ran & ended & (end < start), names.end, lambda r: f"is {start[r] - end[r]} s before the start"
    )
    faults.add_where(
        ~ran & ended & (end < submit),
        names.end,
        lambda r: f"is {submit[r] - end[r]} s before the job was submitted",
    )
    _find_unlikely(columns, faults, names)


def _find_unlikely(columns: dict[str, Any], faults: RowErrors, names: FieldNames) -> None:
    ran, ended = columns["start"] != ABSENT, columns["end"] != ABSENT
    if (nodes := columns.get("nodes")) is not None:
        faults.add_where(ran & (nodes == 0), names.nodes, lambda _: "0, but the job ran")
    if (limit := columns.get("limit")) is not None:
        faults.add_where(limit == 0, names.limit, lambda _: "0: a job cannot have no time at all")
    if (state := columns.get("state")) is not None:
        waiting = state == JobState.PENDING
        active = waiting | (state == JobState.RUNNING) | (state == JobState.SUSPENDED)
        faults.add_where(waiting & ran, names.start, lambda _: "known, but the job's state is PENDING")
        faults.add_where(
            faults.good & ran & ~ended & ~active,
            names.end,
            lambda r: f"missing, but the job is {_state(state[r])}",
        )


def _state(number: int) -> str:
    return JobState(int(number)).name

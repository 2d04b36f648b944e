"""The Standard Workload Format of the Parallel Workloads Archive, version 2.2.

Chapin et al., Benchmarks and standards for the evaluation of parallel job schedulers, JSSPP 1999;
https://www.cs.huji.ac.il/labs/parallel/workload/swf.html
"""

from __future__ import annotations

import re
from dataclasses import replace
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mirage.domain.bounds import format_instant
from mirage.domain.job import ABSENT, JobState
from mirage.domain.jobtable import Names
from mirage.trace.result import FieldNames, ImportCounts, ImportResult, RowErrors, SwfHeader, finish

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirage.domain.jobtable import Int64, JobTable
    from mirage.trace.result import Mask, Strictness


class SwfField(IntEnum):
    """The 18 fields in their order, from 0."""

    JOB_NUMBER = 0
    SUBMIT_TIME = 1
    WAIT_TIME = 2
    RUN_TIME = 3
    ALLOCATED_PROCESSORS = 4
    AVERAGE_CPU_TIME = 5
    USED_MEMORY = 6
    REQUESTED_PROCESSORS = 7
    REQUESTED_TIME = 8
    REQUESTED_MEMORY = 9
    STATUS = 10
    USER = 11
    GROUP = 12
    EXECUTABLE = 13
    QUEUE = 14
    PARTITION = 15
    PRECEDING_JOB = 16
    THINK_TIME = 17

    @property
    def label(self) -> str:
        """As the format's description calls it."""
        return self.name.lower().replace("_", " ")


_NAMES = FieldNames("submit time", "wait time", "run time", "requested time", "processors")
_HEADER = re.compile(r";\s*+([A-Za-z]+)\s*+:(.*)")
_NUMBER = re.compile(r"[+-]?[0-9]{1,15}(?:\.[0-9]{0,15})?")
_STATES = {0: JobState.FAILED, 1: JobState.COMPLETED, 5: JobState.CANCELLED, ABSENT: JobState.COMPLETED}
_PARTIAL = (2, 3, 4)
_FRACTIONAL = (SwfField.AVERAGE_CPU_TIME, SwfField.USED_MEMORY, SwfField.REQUESTED_MEMORY)
_COUNTS = (SwfField.ALLOCATED_PROCESSORS, SwfField.REQUESTED_PROCESSORS)
_KB_PER_MB = 1024
_BIGGEST = (1 << 31) - 1
_BIGGEST_TIME = 1 << 50

Matrix = NDArray[np.float64]


def looks_like_swf(lines: Sequence[str]) -> bool:
    """Whether the first line is a header comment, or has the format's 18 numbers."""
    return lines[0].lstrip().startswith(";") or not _problem(lines[0].split())


def read_header(lines: Sequence[str]) -> SwfHeader:
    """The ``; Name: value`` comments."""
    matches = (_HEADER.fullmatch(line) for line in lines if line.startswith(";"))
    return SwfHeader(tuple((match[1], match[2].strip()) for match in matches if match))


def import_swf(lines: Sequence[str], path: str, strictness: Strictness) -> ImportResult:
    """Read a log; times count from its start, whose Unix time is the table's ``origin``.

    CPUs become ``cpus``: those requested, or those allocated where the request is not known. Rows of status
    2-4 (parts of a job that has a row as a whole) are left out and counted. Raises ``TraceError`` for the first
    bad row where strict.
    """
    header = read_header(lines)
    data = [(number, line) for number, line in enumerate(lines, start=1) if _is_data(line)]
    cells, numbers, broken = _cut(data)
    whole = ~np.isin(cells[:, SwfField.STATUS], _PARTIAL)
    faults = RowErrors(path, numbers[whole])
    for number, problem in broken:
        faults.add_line(number, problem)
    jobs = _integers(cells[whole], faults)
    table, rejected = finish(_columns(jobs, header, faults), faults, _NAMES, strictness)
    table = replace(
        table, source=path, origin=max(header.number("UnixStartTime"), 0), notes=_notes(jobs, table, header)
    )
    return ImportResult(
        table, rejected, ImportCounts(len(data), len(table), len(rejected), partial=int((~whole).sum())), header
    )


def _is_data(line: str) -> bool:
    stripped = line.strip()
    return bool(stripped) and not stripped.startswith(";")


def _cut(data: list[tuple[int, str]]) -> tuple[Matrix, Int64, list[tuple[int, str]]]:
    """The numbers of each row, its line, and the lines that are not 18 numbers with what is wrong."""
    broken: list[tuple[int, str]] = []
    try:
        cells = np.loadtxt([line for _, line in data], comments=None, ndmin=2) if data else np.empty((0, 18))
        if cells.shape[1] != len(SwfField):
            raise ValueError(cells.shape)
    except ValueError:  # slower, and finds out which lines are to blame
        cut = [(number, line.split()) for number, line in data]
        broken = [(number, problem) for number, row in cut if (problem := _problem(row))]
        data = [(number, line) for (number, line), (_, row) in zip(data, cut, strict=True) if not _problem(row)]
        cells = np.array([[float(text) for text in line.split()] for _, line in data]).reshape(-1, len(SwfField))
    return cells, np.array([number for number, _ in data], dtype=np.int64), broken


def _problem(row: list[str]) -> str:
    if len(row) != len(SwfField):
        return f"{len(row)} fields where the format has {len(SwfField)}"
    bad = next((k for k, text in enumerate(row) if not _NUMBER.fullmatch(text)), None)
    return "" if bad is None else f"{SwfField(bad).label}: {row[bad][:40]!r}: expected a number"


def _integers(cells: Matrix, faults: RowErrors) -> Int64:
    """Read the cells as integers; a row error for others."""
    limit = np.full(len(SwfField), _BIGGEST_TIME)
    limit[list(_COUNTS)] = _BIGGEST
    usable = np.isfinite(cells) & (np.abs(cells) <= limit)
    rounded = np.floor(np.where(usable, cells, ABSENT))
    usable &= (rounded == cells) | np.isin(np.arange(len(SwfField)), _FRACTIONAL)
    for row, column in np.argwhere(~usable).tolist():
        faults.add(
            row, SwfField(column).label, f"{cells[row, column]:g}: expected a whole number of a likely size"
        )
    return rounded.astype(np.int64)


def _columns(jobs: Int64, header: SwfHeader, faults: RowErrors) -> dict[str, Any]:
    start, end = _instants(jobs, faults)
    cpus = _processors(jobs)
    memory = jobs[:, SwfField.REQUESTED_MEMORY]
    partition = SwfField.PARTITION if (jobs[:, SwfField.PARTITION] > 0).any() else SwfField.QUEUE
    return {
        "job_id": jobs[:, SwfField.JOB_NUMBER].astype(np.str_),
        "submit": jobs[:, SwfField.SUBMIT_TIME],
        "start": start,
        "end": end,
        "limit": _positive(jobs[:, SwfField.REQUESTED_TIME]),
        "cpus": cpus.astype(np.int32),
        "nodes": (cpus if _one_processor_nodes(header) else np.full(len(jobs), ABSENT)).astype(np.int32),
        "memory_mb": np.where((memory > 0) & (cpus > 0), -(-memory * cpus // _KB_PER_MB), ABSENT),
        "state": _states(jobs, faults),
        "user": _names(jobs[:, SwfField.USER]),
        "account": _names(jobs[:, SwfField.GROUP]),
        "name": _names(jobs[:, SwfField.EXECUTABLE]),
        "partition": _names(jobs[:, partition]),
    }


def _instants(jobs: Int64, faults: RowErrors) -> tuple[Int64, Int64]:
    """Start and end. A job that got no CPUs and did not run left the queue when its wait ended."""
    submit, wait, run = (jobs[:, field] for field in (SwfField.SUBMIT_TIME, SwfField.WAIT_TIME, SwfField.RUN_TIME))
    for field, seconds in ((SwfField.SUBMIT_TIME, submit), (SwfField.WAIT_TIME, wait), (SwfField.RUN_TIME, run)):
        faults.add_where(seconds < ABSENT, field.label, lambda _: "is negative")
    never = _never_ran(jobs)
    began = submit + np.maximum(wait, 0)
    start = np.where(never | (submit < 0), ABSENT, began)
    left = np.where(wait >= 0, began, ABSENT)
    end = np.where(never, left, np.where(run >= 0, began + np.maximum(run, 0), ABSENT))
    return start, end


def _never_ran(jobs: Int64) -> Mask:
    unfinished = jobs[:, SwfField.STATUS] != 1
    nothing = (jobs[:, SwfField.RUN_TIME] <= 0) & (jobs[:, SwfField.ALLOCATED_PROCESSORS] <= 0)
    cancelled = (jobs[:, SwfField.STATUS] == 5) & (jobs[:, SwfField.RUN_TIME] < 0)
    return np.asarray(unfinished & (nothing | cancelled))


def _processors(jobs: Int64) -> Int64:
    asked, got = jobs[:, SwfField.REQUESTED_PROCESSORS], jobs[:, SwfField.ALLOCATED_PROCESSORS]
    return _positive(np.where(asked > 0, asked, got))


def _positive(numbers: Int64) -> Int64:
    return np.where(numbers > 0, numbers, ABSENT)


def _one_processor_nodes(header: SwfHeader) -> bool:
    return header.number("MaxNodes") == header.number("MaxProcs") != ABSENT


def _states(jobs: Int64, faults: RowErrors) -> NDArray[np.int8]:
    status = jobs[:, SwfField.STATUS]
    known = np.isin(status, list(_STATES))
    faults.add_where(~known, SwfField.STATUS.label, lambda r: f"{status[r]} is not one of -1 to 5")
    return np.select([status == code for code in _STATES], [int(s) for s in _STATES.values()], 0).astype(np.int8)


def _names(numbers: Int64) -> Names:
    """Numbers as names; negative ones are absent."""
    known, codes = np.unique(numbers, return_inverse=True)
    missing = int((known < 0).sum())
    vocabulary = tuple(str(number) for number in known[missing:].tolist())
    return Names(np.maximum(codes - missing, -1).astype(np.int32), vocabulary)


def _notes(jobs: Int64, table: JobTable, header: SwfHeader) -> tuple[str, ...]:
    asked, got = jobs[:, SwfField.REQUESTED_PROCESSORS], jobs[:, SwfField.ALLOCATED_PROCESSORS]
    counted = (
        (
            (asked > 0) & (got > 0) & (asked != got),
            "that got other CPUs than they requested (the request counts)",
        ),
        ((jobs[:, SwfField.WAIT_TIME] < 0) & ~_never_ran(jobs), "without a wait time (they start when submitted)"),
        (jobs[:, SwfField.STATUS] == ABSENT, "without a status (taken as completed)"),
        (jobs[:, SwfField.PRECEDING_JOB] > 0, "that name a preceding job (not used)"),
    )
    notes = [f"jobs {text}: {int(mask.sum())}" for mask, text in counted if mask.any()]
    if (begun := header.number("UnixStartTime")) > 0:
        notes.append(
            f"times count from the start of the log, {format_instant(begun)} (UnixStartTime), as if it were 1970"
        )
    if _one_processor_nodes(header):
        notes.append("MaxNodes is MaxProcs: a node for each CPU")
    elif len(table):
        notes.append("the format has no nodes, only CPUs")
    return tuple(notes)

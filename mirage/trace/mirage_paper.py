"""The job logs published with Mirage (github.com/zhaozhang/Mirage, ``data/``): sacct's table, tab-separated.

Line 1 is a count of lines, line 2 the fields' names (cut to the columns' widths), line 3 dashes; then a row a job.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from mirage.domain.errors import TraceError
from mirage.domain.job import ABSENT, JobState
from mirage.domain.jobtable import Names
from mirage.slurm.duration import parse_limit
from mirage.slurm.job_state import parse_exit_code
from mirage.trace.result import FieldNames, ImportCounts, ImportResult, RowErrors, finish
from mirage.trace.text_columns import (
    in_order,
    natural_number,
    read_cells,
    read_stamps,
    time_zone,
    twice_note,
    whole_number,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from zoneinfo import ZoneInfo

    from mirage.domain.jobtable import Int64
    from mirage.trace.result import Strictness

ZONE = "America/Chicago"
"""TACC's clocks; a 48 h job over the change from daylight saving time shows that the logs follow them."""

_FIELDS = ("JobID", "JobName", "UID", "Start", "Submit", "End", "Priority", "TimelimitRaw", "ExitCode", "NNodes")
_NAMES = FieldNames("Submit", "Start", "End", "TimelimitRaw", "NNodes")
_HEAD = 3
_TIMEOUT_SLACK = 5
"""Seconds before its limit from which on a job's end counts as the limit's doing."""
_NO_STATE = (
    "the log has no states: TIMEOUT where a job ran to within 5 s of its limit, cancelled while pending where it "
    "ended as it started with exit code 0, else COMPLETED or FAILED by the exit code"
)

Cells = dict[str, tuple[str, ...]]


def looks_like_authors_log(lines: Sequence[str]) -> bool:
    """Whether the file begins with a count and the fields' names."""
    return len(lines) >= _HEAD and lines[0].strip().isdecimal() and lines[1].split()[:1] == ["JobID"]


def import_authors_log(lines: Sequence[str], path: str, strictness: Strictness, tz: str) -> ImportResult:
    """Read a log; wall-clock times are those of the zone ``tz``.

    Raises ``TraceError`` for another header and, where strict, for the first bad row; ``ConfigError`` for an
    unknown zone.
    """
    zone = time_zone(tz)
    fields = _header(lines, path)
    data = [(number, line) for number, line in enumerate(lines[_HEAD:], start=_HEAD + 1) if line.strip()]
    cells, faults = _cut(data, fields, path)
    columns, notes = _columns(cells, faults, zone)
    table, rejected = finish(columns, faults, _NAMES, strictness)
    notes = (_NO_STATE, *notes, *_count_note(lines))
    return ImportResult(
        replace(table, source=path, notes=notes), rejected, ImportCounts(len(data), len(table), len(rejected))
    )


def _header(lines: Sequence[str], path: str) -> tuple[str, ...]:
    """The fields' full names in the file's order."""
    if len(lines) < _HEAD or not lines[0].strip().isdecimal():
        raise TraceError(path, 1, "", "expected a count of lines, then the fields' names, then dashes")
    words = lines[1].split()
    names = tuple(next((name for name in _FIELDS if name.startswith(word)), word) for word in words)
    missing = [name for name in _FIELDS if names.count(name) != 1]
    if missing:
        raise TraceError(path, 2, missing[0], "is not exactly once among the fields of the header")
    return names


def _cut(data: list[tuple[int, str]], fields: tuple[str, ...], path: str) -> tuple[Cells, RowErrors]:
    rows = [(number, line.split("\t")) for number, line in data]
    whole = [(number, row) for number, row in rows if len(row) == len(fields)]
    faults = RowErrors(path, np.array([number for number, _ in whole], dtype=np.int64))
    for number, row in rows:
        if len(row) != len(fields):
            faults.add_line(number, f"{len(row)} tab-separated fields where the header has {len(fields)}")
    columns = tuple(zip(*(row for _, row in whole), strict=True)) or ((),) * len(fields)
    return dict(zip(fields, columns, strict=True)), faults


def _columns(cells: Cells, faults: RowErrors, zone: ZoneInfo) -> tuple[dict[str, Any], tuple[str, ...]]:
    stamps = [read_stamps(cells[name], zone, name, faults) for name in ("Submit", "Start", "End")]
    submit, start, end = in_order(*stamps)
    limit = read_cells(cells["TimelimitRaw"], parse_limit, np.int64, "TimelimitRaw", faults)
    exit_code = read_cells(cells["ExitCode"], parse_exit_code, np.int32, "ExitCode", faults)
    run = np.where((start != ABSENT) & (end != ABSENT), end - start, 0)
    state = _states(run, limit, exit_code)
    never = (start == end) & (state == JobState.CANCELLED)
    columns = {
        "job_id": np.array([text.strip() for text in cells["JobID"]], dtype=np.str_),
        "name": Names.encode(list(cells["JobName"])),
        "user": Names.encode([text.strip() for text in cells["UID"]]),
        "submit": submit,
        "start": np.where(never, ABSENT, start),
        "end": end,
        "limit": limit,
        "nodes": read_cells(cells["NNodes"], natural_number, np.int32, "NNodes", faults),
        "priority": read_cells(cells["Priority"], whole_number, np.int64, "Priority", faults),
        "exit_code": exit_code,
        "state": state,
    }
    return columns, twice_note(zone, *stamps)


def _states(run: Int64, limit: Int64, exit_code: Any) -> Any:
    """States by the rules of ``_NO_STATE``."""
    met_limit = (limit > 0) & (run >= limit - _TIMEOUT_SLACK)
    choices = [met_limit, (run == 0) & (exit_code == 0), exit_code == 0]
    states = [JobState.TIMEOUT, JobState.CANCELLED, JobState.COMPLETED]
    return np.select(choices, [int(state) for state in states], int(JobState.FAILED)).astype(np.int8)


def _count_note(lines: Sequence[str]) -> tuple[str, ...]:
    announced, found = lines[0].strip(), len(lines) - 1
    if announced == str(found):
        return ()
    return (f"line 1 announces {announced} lines after it, there are {found}: the log was cut or added to",)

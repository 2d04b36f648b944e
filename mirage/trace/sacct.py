"""Dumps of ``sacct -P``: a header row names the fields, ``|`` separates them (man sacct).

``sacct -a -X -P --noconvert -S 2023-01-01 -E now -o JobID,User,Account,Partition,QOS,JobName,Submit,Eligible,
Start,End,TimelimitRaw,NNodes,AllocTRES,ReqTRES,State,ExitCode,Priority,Constraints,NodeList`` gives all that
Mirage can use. Any order will do, and any other fields next to those needed.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from mirage.domain.errors import TraceError
from mirage.domain.job import ABSENT, JobState
from mirage.domain.jobtable import Names
from mirage.slurm.duration import parse_limit
from mirage.slurm.job_state import expand_job_ids, parse_exit_code, parse_state
from mirage.trace.result import FieldNames, ImportCounts, ImportResult, finish
from mirage.trace.sacct_dump import RESOURCE_FIELDS, cut, resources, size_notes
from mirage.trace.text_columns import (
    in_order,
    is_missing,
    read_cells,
    read_stamps,
    time_zone,
    twice_note,
    whole_number,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from zoneinfo import ZoneInfo

    from mirage.domain.jobtable import Int64, JobTable
    from mirage.trace.result import Mask, Strictness
    from mirage.trace.sacct_dump import Dump

_NEEDED = (
    *(("JobID",), ("Submit",), ("Start",), ("End",), ("State",)),
    ("TimelimitRaw", "Timelimit"),
    ("NNodes", "AllocNodes", "ReqNodes", "AllocTRES", "ReqTRES"),
)
_TEXTS = {
    "user": ("User", "UID"),
    "account": ("Account",),
    "partition": ("Partition",),
    "qos": ("QOS",),
    "name": ("JobName",),
    "constraint": ("Constraints",),
    "node_list": ("NodeList",),
}
_USED = ("Eligible", "ExitCode", "Priority", *RESOURCE_FIELDS)
_NAMES = FieldNames("Submit", "Start", "End", "Timelimit", "NNodes")


def import_sacct(lines: Sequence[str], path: str, strictness: Strictness, tz: str) -> ImportResult:
    """Read a dump; wall-clock times are those of the zone ``tz``.

    Raises ``TraceError`` for missing fields and, where strict, for the first bad row; ``ConfigError`` for an
    unknown zone.
    """
    zone = time_zone(tz)
    dump = cut(lines, path)
    _require(dump)
    columns, notes = _columns(dump, zone)
    every_row, rejected = finish(columns, dump.faults, _NAMES, strictness)
    table = _without_repeats(every_row)
    expanded = _expand_arrays(table)
    repeated = len(every_row) - len(table)
    every_note = (
        *notes,
        *size_notes(dump),
        *_repeats_note(repeated),
        *_array_notes(table, len(expanded)),
        *_id_notes(expanded),
        *_unused_note(dump),
    )
    counts = ImportCounts(dump.rows, len(expanded), len(rejected), steps=dump.steps, repeated=repeated)
    return ImportResult(replace(expanded, source=path, notes=every_note), rejected, counts)


def _require(dump: Dump) -> None:
    for names in _NEEDED:
        if dump.cells(*names) is None:
            problem = "the dump does not have this field; ask sacct for it with --format"
            raise TraceError(dump.path, 1, " or ".join(names), problem)


def _columns(dump: Dump, zone: ZoneInfo) -> tuple[dict[str, Any], tuple[str, ...]]:
    faults = dump.faults
    stamps = [read_stamps(_cells(dump, f), zone, f, faults) for f in ("Submit", "Eligible", "Start", "End")]
    submit, start, end = in_order(stamps[0], stamps[2], stamps[3])
    ids = _cells(dump, "JobID")
    end = np.where([text.startswith("RESIZING") for text in _cells(dump, "State")], ABSENT, end)
    submit, eligible, resized = _of_whole_runs(ids, submit, stamps[1].epoch, start)
    state = read_cells(_cells(dump, "State"), parse_state, np.int8, "State", faults)
    read_cells(ids, _check_id, np.int8, "JobID", faults)
    never = _never_ran(dump, state, start, end)
    columns = {
        "job_id": np.array(ids, dtype=np.str_),
        "submit": submit,
        "eligible": eligible,
        "start": np.where(never, ABSENT, start),
        "end": end,
        "limit": read_cells(_cells(dump, "TimelimitRaw", "Timelimit"), parse_limit, np.int64, "Timelimit", faults),
        "state": state,
        "exit_code": read_cells(_cells(dump, "ExitCode"), parse_exit_code, np.int32, "ExitCode", faults),
        "priority": read_cells(_cells(dump, "Priority"), whole_number, np.int64, "Priority", faults),
        **{column: _names(dump, *fields) for column, fields in _TEXTS.items()},
        **resources(dump),
    }
    count = int(never.sum())
    unstarted = f"cancelled jobs with a start but no node, which count as never started: {count}"
    zone_note = f"times are wall-clock times of {zone.key}"
    sizes = f"rows of jobs that were resized, which count as one run of the last size: {resized}"
    notes = [*([unstarted] if count else []), *([sizes] if resized else [])]
    return columns, (zone_note, *twice_note(zone, *stamps), *notes)


def _of_whole_runs(ids: Sequence[str], submit: Int64, eligible: Int64, start: Int64) -> tuple[Int64, Int64, int]:
    """Submit and eligible times of runs, and how many rows are of another size of a run than its first.

    slurmdbd has a row for each size: submitted when the size changed, started when the run did. As rows of the
    same run they bear the times of its first size. A row that starts before it was submitted is wrong otherwise.
    """
    known = start != ABSENT
    first = {(ids[row], start[row]): row for row in np.flatnonzero(known & (start >= submit))[::-1].tolist()}
    later = [row for row in np.flatnonzero(known & (start < submit)).tolist() if (ids[row], start[row]) in first]
    rows = np.arange(len(ids))
    rows[later] = [first[ids[row], start[row]] for row in later]
    return submit[rows], eligible[rows], len(later)


def _cells(dump: Dump, *fields: str) -> tuple[str, ...]:
    """Return the cells of the first existing field, or blank ones."""
    return dump.cells(*fields) or ("",) * len(dump)


def _check_id(text: str) -> int:
    """Raises ``BadSpelling`` for what is no job id."""
    return len(expand_job_ids(text)[:1])


def _names(dump: Dump, *fields: str) -> Names:
    cells = _cells(dump, *fields)
    blank = {text: "" for text in set(cells) if fields[0] in ("NodeList", "Constraints") and is_missing(text)}
    return Names.encode([blank.get(text, text) for text in cells] if blank else list(cells))


def _never_ran(dump: Dump, state: Any, start: Int64, end: Int64) -> Mask:
    """Jobs cancelled while pending to which older releases give their end as start (no node was assigned)."""
    evidence = next((c for f in ("NodeList", "AllocTRES") if (c := dump.cells(f)) is not None), None)
    if evidence is None:
        return np.zeros(len(dump), dtype=bool)
    no_node = np.array([is_missing(text) for text in evidence], dtype=bool)
    return np.asarray((state == JobState.CANCELLED) & (start != ABSENT) & (start == end) & no_node)


def _without_repeats(table: JobTable) -> JobTable:
    """One row for each record of dumps that overlap; of several the last one that knows an end, else the last.

    slurmdbd keeps one record for a job id and a time of submission; a requeued job is submitted again.
    """
    last: dict[tuple[str, int], int] = {}
    for row, key in enumerate(zip(table.job_id.tolist(), table.submit.tolist(), strict=True)):
        if key not in last or table.end[row] != ABSENT or table.end[last[key]] == ABSENT:
            last[key] = row
    return table if len(last) == len(table) else table.take(np.sort(np.fromiter(last.values(), dtype=np.int64)))


def _repeats_note(count: int) -> tuple[str, ...]:
    return (f"rows of overlapping dumps left out, whose job id and submission stand twice: {count}",) * bool(count)


def _expand_arrays(table: JobTable) -> JobTable:
    """One row for each task of the pending arrays."""
    ids = [expand_job_ids(text) if "[" in text else [text] for text in table.job_id.tolist()]
    counts = [len(tasks) for tasks in ids]
    if max(counts, default=1) == 1:
        return table
    rows = table.take(np.repeat(np.arange(len(table)), counts))
    return replace(rows, job_id=np.array([task for tasks in ids for task in tasks], dtype=np.str_))


def _array_notes(table: JobTable, expanded: int) -> tuple[str, ...]:
    arrays = [text for text in table.job_id.tolist() if "[" in text]
    cut_short = sum(text.endswith("...]") for text in arrays)
    whole = len(arrays) - cut_short
    added = expanded - len(table) + whole
    notes = []
    if whole:
        notes.append(
            f"array records expanded into their tasks: {whole} ({added} tasks; the % throttle is not kept)"
        )
    if cut_short:
        notes.append(f"array records whose list of tasks is cut short, one row each: {cut_short}")
    return tuple(notes)


def _id_notes(table: JobTable) -> tuple[str, ...]:
    ids = table.job_id.tolist()
    components = sum("+" in text for text in ids)
    repeated = sum(count - 1 for count in Counter(ids).values())
    notes = []
    if components:
        notes.append(f"components of heterogeneous jobs, as separate jobs: {components}")
    if repeated:
        notes.append(f"rows that repeat the id of another, submitted at another time (requeued jobs): {repeated}")
    return tuple(notes)


def _unused_note(dump: Dump) -> tuple[str, ...]:
    used = {name.lower() for names in (*_NEEDED, *_TEXTS.values(), _USED) for name in names}
    unused = [field for field in dump.fields if field.lower() not in used]
    return (f"fields not used: {', '.join(unused)}",) if unused else ()
